"""The node's cache of objects: an object that the same role fetched before is not fetched again while it is unchanged.

An entry is named by a hash of role, bucket, key, ETag and size, so a changed object is another entry and no role ever
meets another's. Invariants:

* A job's own credentials have listed an object, with this ETag and size, before its entry is used for that job.
* An entry's bytes never change. A job gets a hard link only where its sandbox puts an overlay above it (`shared`), so
  that what it writes lands in the overlay; otherwise, and of small objects, it gets a copy (a reflink where the file
  system has them).
* An entry is used only while size, inode and time are those of its row, of this boot; else its checksum decides. What
  is damaged is dropped and fetched anew.
* An entry that a running job has a link to, or that a thread has `alone`, is not evicted. A crash at any line leaves
  whole entries and scraps only, and the scraps are deleted at the next start.
"""

import contextlib
import errno
import hashlib
import json
import logging
import os
import shutil
import threading
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trainshed_worker.data.cache_index import CacheIndex, Entry
from trainshed_worker.data.listing import RemoteObject
from trainshed_worker.data.materialize import duplicate
from trainshed_worker.data.store import Cancellation

LARGEST_DEFAULT = 50 * 10**9
SHARE_OF_DISK = 0.1
LEAST_FREE = 2 * 10**9
"""Bytes that the cache leaves free on its disk, for the jobs."""
SHARED_MODE, PRIVATE_MODE = 0o666, 0o644
"""A shared file can be written by every job's user, but only through that job's overlay: nothing else shows it."""
LINKED_FROM = 1 << 20
"""Bytes; smaller objects are copied, so that the job owns them: scripts among them are given modes and times."""
CHUNK = 1 << 20
_log = logging.getLogger(__name__)


def default_limit(folder: Path) -> int:
    """Bytes: a tenth of the disk, at most 50 GB."""
    place = next(path for path in (folder, *folder.parents) if path.exists())
    return min(LARGEST_DEFAULT, int(shutil.disk_usage(place).total * SHARE_OF_DISK))


@dataclass(frozen=True)
class CacheSize:
    entries: int
    bytes: int
    limit: int


class ObjectCache:
    """All roles' entries below `folder`, at most `limit` bytes. Thread-safe; one process at a time may have it open."""

    def __init__(self, folder: Path, limit: int, *, shared: bool, linked_from: int = LINKED_FROM) -> None:
        self.folder = folder
        self.limit = limit
        self.shared = shared
        self._linked_from = linked_from
        self._objects = folder / "objects"
        self._objects.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
        self._boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        self._index = CacheIndex(folder / "index.sqlite3")
        self._room = threading.Lock()
        self._busy: set[str] = set()
        self._freed = threading.Condition()
        self._delete_scraps()
        self._bytes = self._index.totals()[1]
        with self._room:
            self._evict(0)

    def close(self) -> None:
        self._index.close()

    def size(self) -> CacheSize:
        entries, used = self._index.totals()
        return CacheSize(entries, used, self.limit)

    def for_role(self, role: str) -> "RoleCache":
        return RoleCache(self, role)

    def path(self, name: str) -> Path:
        return self._objects / name[:2] / name

    @contextlib.contextmanager
    def alone(self, name: str, cancellation: Cancellation) -> Iterator[None]:
        """One thread at a time brings an object; the others then find it here. Cancelled while it waits.

        Meanwhile the entry stays, so that what the thread puts in it can also take.
        """
        with self._freed:
            while name in self._busy:
                cancellation.check()
                self._freed.wait(0.2)  # woken at once by the end of the other; the time is for a cancellation
            self._busy.add(name)
        try:
            yield
        finally:
            with self._freed:
                self._busy.discard(name)
                self._freed.notify_all()

    def find(self, names: Iterable[str]) -> dict[str, Entry]:
        return self._index.find(names)

    def take(self, entry: Entry, target: Path) -> bool:
        """Put the entry's bytes at `target`, which must not exist; False where there is no such entry in order."""
        source = self.path(entry.name)
        try:
            if not self._in_order(entry, source):
                self._drop(entry)
                return False
            if not self.shared or entry.size < self._linked_from:
                duplicate(source, target, PRIVATE_MODE)
                return True
            try:
                os.link(source, target)
            except OSError as error:
                if error.errno not in (errno.EMLINK, errno.EXDEV, errno.EPERM):
                    raise
                duplicate(source, target, PRIVATE_MODE)
            return True
        except FileNotFoundError:
            if source.exists():
                raise  # it is the target's folder that is missing
            self._drop(entry)
            return False

    def _in_order(self, entry: Entry, source: Path) -> bool:
        """FileNotFoundError where the file is gone."""
        status = source.lstat()
        if status.st_size != entry.size:
            return False
        if (status.st_ino, status.st_mtime_ns, self._boot) == (entry.inode, entry.mtime_ns, entry.boot):
            return True
        if digest_of(source, entry.digest.partition(":")[0]) != entry.digest:
            _log.warning("cache entry %s is damaged; its object is fetched again", entry.name)
            return False
        self._index.put(
            Entry(entry.name, entry.role, entry.size, status.st_ino, status.st_mtime_ns, self._boot, entry.digest)
        )
        return True

    def put(self, name: str, role: str, size: int, file: Path, digest: str) -> Entry | None:
        """Move `file` (whole, checked, on the same file system) in; None where it does not fit, and it stays."""
        place = self.path(name)
        with self._room:
            self._forget(name)
            if not self._evict(size):
                return None
            file.chmod(SHARED_MODE if self.shared else PRIVATE_MODE)
            place.parent.mkdir(exist_ok=True, mode=0o700)
            try:
                os.replace(file, place)
            except OSError as error:
                if error.errno == errno.EXDEV:
                    return None
                raise
            status = place.lstat()
            entry = Entry(name, role, size, status.st_ino, status.st_mtime_ns, self._boot, digest)
            self._index.put(entry)
            self._bytes += size
        return entry

    def _forget(self, name: str) -> None:
        """Drop an old entry of the same name, if any. Call with the lock held."""
        for entry in self._index.find([name]).values():
            self._remove(name, entry.size)

    def _drop(self, entry: Entry) -> None:
        """Remove this entry, but not one that another thread has put in its place since."""
        with self._room:
            if self._index.find([entry.name]).get(entry.name) == entry:
                self._remove(entry.name, entry.size)

    def _remove(self, name: str, size: int) -> None:
        """The row first: a file without a row is only a scrap. Call with the lock held."""
        self._index.delete(name)
        self.path(name).unlink(missing_ok=True)
        self._bytes -= size

    def free(self, wanted: int) -> None:
        """Evict until the disk has `wanted` bytes free, or nothing more can go."""
        with self._room:
            self._evict(0, wanted)

    def _evict(self, incoming: int, least_free: int | None = None) -> bool:
        """Make room for `incoming` bytes; False where that cannot be. Call with the lock held."""
        if incoming > self.limit:
            return False
        floor = LEAST_FREE if least_free is None else least_free
        after = (-1.0, "")
        while self._bytes + incoming > self.limit or shutil.disk_usage(self.folder).free < floor:
            batch = self._index.oldest(after)
            if not batch:
                break
            for used_at, name, size in batch:
                after = (used_at, name)
                if self._bytes + incoming <= self.limit and shutil.disk_usage(self.folder).free >= floor:
                    break
                if not self._in_use(name):
                    self._remove(name, size)
        return self._bytes + incoming <= self.limit and (
            least_free is not None or shutil.disk_usage(self.folder).free >= floor
        )

    def _in_use(self, name: str) -> bool:
        with self._freed:
            if name in self._busy:
                return True
        try:
            return self.path(name).lstat().st_nlink > 1
        except FileNotFoundError:
            return False

    def _delete_scraps(self) -> None:
        known = self._index.names()
        for folder in self._objects.iterdir():
            for path in folder.iterdir():
                if path.name not in known:
                    path.unlink()


class RoleCache:
    """One role's part of the cache."""

    def __init__(self, cache: ObjectCache, role: str) -> None:
        self.cache = cache
        self.role = role

    def name(self, item: RemoteObject) -> str:
        identity = json.dumps([self.role, item.bucket, item.key, item.etag, item.size])
        return hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()

    def find(self, items: Iterable[RemoteObject]) -> dict[str, Entry]:
        """Entries of these objects by name. Having one says nothing of its state: `take` looks."""
        return self.cache.find(self.name(item) for item in items)

    def put(self, item: RemoteObject, file: Path, digest: str) -> Entry | None:
        return self.cache.put(self.name(item), self.role, item.size, file, digest)


class Crc32:
    """zlib's CRC-32 with the interface of hashlib: four times as fast as MD5, for finding damage, not malice."""

    name = "crc32"

    def __init__(self, value: int = 0) -> None:
        self._value = value

    def update(self, data: bytes) -> None:
        self._value = zlib.crc32(data, self._value)

    def copy(self) -> "Crc32":
        return Crc32(self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


def new_digest(kind: str) -> "hashlib._Hash | Crc32":
    """`md5` or `crc32`."""
    return Crc32() if kind == "crc32" else hashlib.new(kind, usedforsecurity=False)


def digest_of(path: Path, kind: str) -> str:
    """`kind:hex` of a file's content."""
    digest = new_digest(kind)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return f"{kind}:{digest.hexdigest()}"
