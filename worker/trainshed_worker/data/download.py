"""Download of a channel in File mode: parallel, resumable, verified; a file has its own name only once it is whole.

Invariant: a name in the channel's directory always holds the complete object that was listed. Bytes go to a temporary
name in a directory of the agent's own (on the same file system) and are renamed; what is done is recorded after the
rename, so a restart fetches at most the files under way again. With a cache, an object that is in it is not fetched,
and one that is not goes into it first and from there to its name.
"""

import json
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from trainshed_worker.contract.channels import Channel
from trainshed_worker.data.cache import RoleCache, new_digest
from trainshed_worker.data.cache_index import Entry
from trainshed_worker.data.errors import DataError, disk_error
from trainshed_worker.data.listing import (
    RemoteObject,
    check_no_clash,
    manifest_entries,
    order,
    relative_path,
    safe_path,
    shard,
)
from trainshed_worker.data.store import Location, ObjectStore, error_code, parse_uri
from trainshed_worker.protocol import FailureCause

USER = FailureCause.USER_INPUT
CHUNK = 1 << 20
PART = 64 << 20
"""Objects above twice this are fetched in ranges of this size, several at a time."""
WORKERS = 8
MAX_MANIFEST = 64 << 20
ATTEMPTS_PER_OBJECT = 3
"""Times that an object with a wrong checksum is fetched before the download fails."""

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all) of one channel, from any thread, often."""
Note = Callable[[str], None]


def list_prefix(store: ObjectStore, location: Location, what: str, note: Note) -> list[RemoteObject]:
    """All objects whose key begins with the location's key, with paths as `relative_path` gives them."""
    found: list[RemoteObject] = []
    token: str | None = None
    while True:
        arguments: dict[str, Any] = {"Bucket": location.bucket, "Prefix": location.key}
        if token:
            arguments["ContinuationToken"] = token
        page = store.call(lambda a=arguments: store.client.list_objects_v2(**a), what, USER, note)  # type: ignore[misc]
        for item in page.get("Contents", []):
            key = item["Key"]
            uri = f"s3://{location.bucket}/{key}"
            path = safe_path(relative_path(location.key, key), uri)
            if path:
                found.append(RemoteObject(location.bucket, key, item["Size"], item["ETag"].strip('"'), path))
        token = page.get("NextContinuationToken")
        if not page.get("IsTruncated") or not token:
            return found


def plan_channel(store: ObjectStore, channel: Channel, note: Note) -> list[RemoteObject]:
    """The objects that this host downloads for the channel. DataError where there are none at all."""
    if channel.s3_uri is None:
        raise DataError(FailureCause.UNSUPPORTED, f"channel {channel.name} has no S3 data source; only S3 is supported")
    try:
        location = parse_uri(channel.s3_uri)
    except ValueError as error:
        raise DataError(USER, f"channel {channel.name}: {error}") from error
    what = f"channel {channel.name}: reading {channel.s3_uri}"
    if channel.s3_data_type == "ManifestFile":
        objects = _from_manifest(store, location, what, note)
    elif channel.s3_data_type == "S3Prefix":
        objects = list_prefix(store, location, what, note)
    else:
        raise DataError(
            FailureCause.UNSUPPORTED,
            f"channel {channel.name}: S3DataType {channel.s3_data_type} cannot be read in File mode; "
            "use S3Prefix or ManifestFile",
        )
    if not objects:
        raise DataError(
            USER,
            f'No S3 objects found under S3 URL "{channel.s3_uri}" given in input data source (channel {channel.name}). '
            "Please ensure that the bucket exists and that objects exist under that S3 prefix.",
        )
    check_no_clash(objects)
    by_key = {item.uri: item for item in objects}
    keys = order(list(by_key), channel.shuffle_seed)
    if channel.distribution == "ShardedByS3Key":
        keys = shard(keys, channel.shard_index, channel.shard_count)
    return [by_key[key] for key in keys]


def _from_manifest(store: ObjectStore, location: Location, what: str, note: Note) -> list[RemoteObject]:
    def read() -> bytes:
        answer = store.client.get_object(Bucket=location.bucket, Key=location.key)
        if answer["ContentLength"] > MAX_MANIFEST:
            raise DataError(USER, f"{what}: the manifest is larger than {MAX_MANIFEST >> 20} MB")
        content: bytes = answer["Body"].read()
        return content

    entries = manifest_entries(store.call(read, what, USER, note), location.uri)

    def head(entry: tuple[Location, str]) -> RemoteObject:
        place, path = entry
        answer = store.call(
            lambda: store.client.head_object(Bucket=place.bucket, Key=place.key),
            f"manifest {location.uri}: reading {place.uri}",
            USER,
            note,
        )
        return RemoteObject(place.bucket, place.key, answer["ContentLength"], answer["ETag"].strip('"'), path)

    with ThreadPoolExecutor(WORKERS, thread_name_prefix="manifest") as pool:
        return list(pool.map(head, entries))


class _Record:
    """Which objects are in place. Valid for one boot of the machine, since files are not synced one by one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done: set[str] = set()
        self._lock = threading.Lock()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        lines = path.read_text().split("\n") if path.exists() else []
        if lines and lines[0] == boot:
            self.done = set(lines[1:-1])  # a torn last line is not in it: each ends with a newline
            self._file = path.open("a")
            if lines[-1]:
                self._file.write("\n")
        else:
            self._file = path.open("w")
            self._file.write(boot + "\n")
        self._file.flush()

    @staticmethod
    def identity(item: RemoteObject) -> str:
        return json.dumps([item.uri, item.etag, item.size, item.path])

    def add(self, item: RemoteObject) -> None:
        with self._lock:
            self._file.write(self.identity(item) + "\n")
            self._file.flush()

    def close(self) -> None:
        self._file.close()


class Downloader:
    """Brings objects below `directory`; `scratch` is a directory of the agent's own on the same file system."""

    def __init__(
        self,
        store: ObjectStore,
        directory: Path,
        scratch: Path,
        record: Path,
        label: str,
        progress: Progress,
        note: Note,
        cache: RoleCache | None = None,
    ) -> None:
        self.store = store
        self.cache = cache
        self.directory = directory
        self.scratch = scratch
        self.label = label
        self._progress = progress
        self._note = note
        self._lock = threading.Lock()
        self._moved = 0
        self._total = 0
        self._folders: set[Path] = set()
        self._record_path = record
        self._record: _Record | None = None

    def run(self, objects: Sequence[RemoteObject]) -> int:
        """Download all; returns the bytes in all. Raises DataError or Cancelled after every thread has ended."""
        self._total = sum(item.size for item in objects)
        self.directory.mkdir(parents=True, exist_ok=True)
        missing = self._from_cache(objects)
        if not missing:
            return self._total
        self.scratch.mkdir(parents=True, exist_ok=True)
        self._record_path.parent.mkdir(parents=True, exist_ok=True)
        self._record = _Record(self._record_path)
        try:
            self._check_room(sum(item.size for _, item in missing))
            with ThreadPoolExecutor(min(WORKERS, len(missing)), thread_name_prefix="download") as pool:
                futures = [pool.submit(self._one, number, item) for number, item in missing]
                done, pending = wait(futures, return_when=FIRST_EXCEPTION)
                for future in pending:
                    future.cancel()
            for future in done:
                future.result()
            return self._total
        finally:
            self._record.close()
            shutil.rmtree(self.scratch, ignore_errors=True)

    def _from_cache(self, objects: Sequence[RemoteObject]) -> list[tuple[int, RemoteObject]]:
        """Place what is in the cache; the rest, numbered, is to be fetched."""
        if self.cache is None:
            return list(enumerate(objects))
        found = self.cache.find(objects)
        missing = []
        for number, item in enumerate(objects):
            self.store.cancellation.check()
            entry = found.get(self.cache.name(item)) if found else None
            try:
                placed = entry is not None and not item.path.endswith("/") and self._take(entry, item)
            except OSError as error:
                raise self._words(error, item) from error
            if placed:
                self._add(item.size)
            else:
                missing.append((number, item))
        return missing

    def _take(self, entry: Entry, item: RemoteObject) -> bool:
        assert self.cache is not None
        target = self._prepare(item)
        target.unlink(missing_ok=True)  # of a run that was interrupted: a rename onto itself would do nothing
        return self.cache.cache.take(entry, target)

    def _prepare(self, item: RemoteObject) -> Path:
        target = self.directory / item.path
        if target.parent not in self._folders:
            target.parent.mkdir(parents=True, exist_ok=True)
            self._folders.add(target.parent)
        return target

    def _words(self, error: OSError, item: RemoteObject) -> DataError:
        return disk_error(error, f"/opt/ml/input/data ({self.label}, {item.uri})", USER)

    def _check_room(self, needed: int) -> None:
        free = shutil.disk_usage(self.directory).free
        if needed > free and self.cache is not None:
            self.cache.cache.free(needed)
            free = shutil.disk_usage(self.directory).free
        if needed > free:
            raise DataError(
                USER,
                f"{self.label} has {self._total / 1e6:.0f} MB, but the node's disk has only {free / 1e6:.0f} MB free",
            )

    def _add(self, size: int) -> None:
        with self._lock:
            self._moved += size
            moved = self._moved
        self._progress(moved, self._total)

    def _one(self, number: int, item: RemoteObject) -> None:
        self.store.cancellation.check()
        assert self._record is not None
        try:
            if item.path.endswith("/"):
                (self.directory / item.path).mkdir(parents=True, exist_ok=True)
                return
            target = self._prepare(item)
            if self._record.identity(item) in self._record.done and target.is_file():
                self._add(item.size)
                return
            temporary = self.scratch / f"{number}.part"
            if self.cache is None:
                self._place(item, temporary, target, self._whole(item, temporary))
                return
            with self.cache.cache.alone(self.cache.name(item), self.store.cancellation):
                for entry in self.cache.find([item]).values():  # another job on this node may just have brought it
                    if self._take(entry, item):
                        self._add(item.size)
                        return
                self._place(item, temporary, target, self._whole(item, temporary))
        except OSError as error:
            raise self._words(error, item) from error

    def _place(self, item: RemoteObject, temporary: Path, target: Path, digest: str) -> None:
        """From the scratch folder to its name, by way of the cache where it fits in there."""
        assert self._record is not None
        entry = self.cache.put(item, temporary, digest) if self.cache is not None else None
        if entry is not None and self._take(entry, item):
            return
        if entry is not None:
            raise FileNotFoundError(f"the cache entry of {item.uri} was removed by somebody else")
        temporary.chmod(0o644)
        os.replace(temporary, target)
        self._record.add(item)

    def _whole(self, item: RemoteObject, temporary: Path) -> str:
        """Fetch the object; its digest as `kind:hex`."""
        for attempt in range(1, ATTEMPTS_PER_OBJECT + 1):
            digest = self._fetch(item, temporary)
            if digest is not None:
                return digest
            if attempt < ATTEMPTS_PER_OBJECT:
                self._add(-item.size)
        raise DataError(
            USER, f"{self.label}: {item.uri} arrived {ATTEMPTS_PER_OBJECT} times with a checksum other than its ETag"
        )

    def _fetch(self, item: RemoteObject, temporary: Path) -> str | None:
        """Bring the bytes to `temporary`; None where they do not match the ETag."""
        whole_md5 = "-" not in item.etag and len(item.etag) == 32
        kind = "md5" if whole_md5 else "crc32"
        digest: Any = new_digest(kind)
        encrypted = False
        ranges = [(0, item.size)]
        if item.size > 2 * PART:
            ranges = [(start, min(start + PART, item.size)) for start in range(0, item.size, PART)]
        with temporary.open("w+b") as file:
            for start, end in ranges:
                digest, sealed = self._range(item, file.fileno(), start, end, digest)
                encrypted = encrypted or sealed
        # The ETag of an object under a key is no checksum of its content.
        if whole_md5 and not encrypted and digest.hexdigest() != item.etag:
            return None
        return f"{kind}:{digest.hexdigest()}"

    def _range(self, item: RemoteObject, fd: int, start: int, end: int, digest: Any) -> tuple[Any, bool]:
        """Bytes of [start, end); the digest with them, and whether the object is encrypted under a key."""
        moved = 0

        def fetch() -> tuple[Any, bool]:
            nonlocal moved
            self._add(-moved)
            moved = 0
            running = digest.copy()
            if end == start:
                return running, False
            arguments: dict[str, Any] = {"Bucket": item.bucket, "Key": item.key, "IfMatch": f'"{item.etag}"'}
            if (start, end) != (0, item.size):
                arguments["Range"] = f"bytes={start}-{end - 1}"
            try:
                answer = self.store.client.get_object(**arguments)
            except ClientError as error:
                if error_code(error) in ("PreconditionFailed", "412"):
                    raise DataError(USER, f"{self.label}: {item.uri} was changed while it was downloaded") from error
                raise
            encrypted = "kms" in str(answer.get("ServerSideEncryption", "")) or "SSECustomerAlgorithm" in answer
            position = start
            for chunk in answer["Body"].iter_chunks(CHUNK):
                self.store.cancellation.check()
                view = memoryview(chunk)
                while view:
                    written = os.pwrite(fd, view, position)
                    view = view[written:]
                    position += written
                running.update(chunk)
                moved += len(chunk)
                self._add(len(chunk))
            if position != end:
                raise ConnectionError(f"{position - start} of {end - start} bytes arrived")
            return running, encrypted

        return self.store.call(fetch, f"{self.label}: reading {item.uri}", USER, self._note)


def download_channel(
    store: ObjectStore,
    channel: Channel,
    directory: Path,
    state: Path,
    progress: Progress,
    note: Note,
    cache: RoleCache | None = None,
) -> int:
    """Bring one File-mode channel below `directory`; returns its bytes on this host. Blocking; safe to repeat."""
    objects = plan_channel(store, channel, note)
    downloader = Downloader(
        store,
        directory,
        scratch=state / f"download-{channel.name}",
        record=state / f"download-{channel.name}.done",
        label=f"channel {channel.name}",
        progress=progress,
        note=note,
        cache=cache,
    )
    return downloader.run(objects)
