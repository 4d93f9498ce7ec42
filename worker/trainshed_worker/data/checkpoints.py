"""Checkpoints: restored from S3 before the start, then local changes copied to S3 every few seconds and at the end.

Invariants:
* After a final `sync_once(final=True)` that succeeded the objects that this host tracks equal its local files.
* A file that vanishes or changes while it is read is no error; it is looked at again in the next round.
* Only objects that this host has restored or uploaded are ever deleted, and only when their local file is gone.
The record of what is in S3 is on disk, so a restarted agent neither uploads everything again nor forgets a deletion.
"""

import contextlib
import errno
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from trainshed_worker.data.download import Downloader, Note, Progress, list_prefix
from trainshed_worker.data.errors import Cancelled, DataError, disk_error
from trainshed_worker.data.listing import check_no_clash
from trainshed_worker.data.multipart import ObjectWriter
from trainshed_worker.data.store import Location, ObjectStore, parse_uri
from trainshed_worker.data.tree import Entry, open_file, walk
from trainshed_worker.protocol import FailureCause

CHUNK = 1 << 20
SETTLE_SECONDS = 1.0
"""A file that was written to this recently is probably still being written; it waits for a later round, not long."""
LONGEST_SETTLE = 10.0
CHANGES_WHILE_READ = 3
"""After so many torn readings in a row a file is uploaded as it is read (a log that is always written to)."""
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)

Signature = tuple[int, int, int]


class _Changed(Exception):
    """The file changed while it was read."""


class CheckpointSync:
    """One host's checkpoint directory and its prefix. Calls block; one at a time."""

    def __init__(
        self,
        store: ObjectStore,
        s3_uri: str,
        root: Path,
        relative: str,
        state: Path,
        label: str = "/opt/ml/checkpoints",
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = store
        self.prefix = parse_uri(s3_uri)
        self.root = root
        self.relative = relative
        self.state = state
        self.label = label
        self._clock = wall_clock
        self._record = state / "checkpoints.json"
        self._synced: dict[str, Signature] = self._load()
        self._torn: dict[str, int] = {}
        self._seen_at: dict[str, float] = {}

    def _load(self) -> dict[str, Signature]:
        try:
            raw = json.loads(self._record.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return {path: (int(s[0]), int(s[1]), int(s[2])) for path, s in raw.items()}

    def _save(self) -> None:
        self.state.mkdir(parents=True, exist_ok=True)
        temporary = self._record.with_suffix(".new")
        with temporary.open("w") as file:
            json.dump(self._synced, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._record)

    def _location(self, path: str) -> Location:
        return self.prefix.below(path)

    def restore(self, progress: Progress, note: Note) -> int:
        """Download what the prefix has; returns bytes. An empty prefix is a first start. Safe to repeat."""
        key = self.prefix.key.rstrip("/")
        below = Location(self.prefix.bucket, key + "/" if key else "")
        objects = list_prefix(self.store, below, f"restoring checkpoints from {below.uri}", note)
        check_no_clash(objects)
        directory = self.root / self.relative
        downloader = Downloader(
            self.store,
            directory,
            scratch=self.state / "download-checkpoints",
            record=self.state / "download-checkpoints.done",
            label="checkpoints",
            progress=progress,
            note=note,
        )
        moved = downloader.run(objects)
        for entry in walk(self.root, self.relative):
            if entry.kind == "file":
                self._synced[entry.path] = entry.signature
        self._save()
        return moved

    def sync_once(self, note: Note = lambda _: None, *, final: bool = False) -> tuple[int, int]:
        """One round: returns (objects uploaded, objects deleted). DataError (OUTPUT) where the store refuses.

        With `final` nothing is put off: call it when no process of the job lives any more.
        """
        now = self._clock()
        uploaded = deleted = 0
        present: set[str] = set()
        try:
            for entry in walk(self.root, self.relative):
                if entry.kind != "file":
                    continue
                present.add(entry.path)
                if self._synced.get(entry.path) == entry.signature:
                    continue
                if not final and self._still_written(entry, now):
                    continue
                if self._upload(entry, note, final=final):
                    uploaded += 1
            for path in sorted(set(self._synced) - present):
                self._delete(path, note)
                deleted += 1
        except OSError as error:
            raise disk_error(error, self.label, FailureCause.OUTPUT) from error
        finally:
            if uploaded or deleted:
                self._save()
        for path in set(self._torn) - present:
            del self._torn[path]
        for path in set(self._seen_at) - present:
            del self._seen_at[path]
        return uploaded, deleted

    def _still_written(self, entry: Entry, now: float) -> bool:
        first = self._seen_at.setdefault(entry.path, now)
        return now - entry.mtime_ns / 1e9 < SETTLE_SECONDS and now - first < LONGEST_SETTLE

    def _delete(self, path: str, note: Note) -> None:
        place = self._location(path)
        self.store.call(
            lambda: self.store.client.delete_object(Bucket=place.bucket, Key=place.key),
            f"deleting the checkpoint {place.uri}",
            FailureCause.OUTPUT,
            note,
        )
        del self._synced[path]

    def _upload(self, entry: Entry, note: Note, *, final: bool) -> bool:
        """True where the object was written; False where the file vanished or changed under way."""
        accept_torn = final or self._torn.get(entry.path, 0) >= CHANGES_WHILE_READ
        try:
            signature = self._stream(entry, note, accept_torn=accept_torn)
        except _Changed:
            self._torn[entry.path] = self._torn.get(entry.path, 0) + 1
            return False
        except OSError as error:
            if error.errno in _GONE:
                return False
            raise
        self._synced[entry.path] = signature
        self._torn.pop(entry.path, None)
        self._seen_at.pop(entry.path, None)
        return True

    def _stream(self, entry: Entry, note: Note, *, accept_torn: bool) -> Signature:
        with open_file(self.root, f"{self.relative}/{entry.path}" if self.relative else entry.path) as fd:
            before = _signature(fd)
            writer = ObjectWriter(self.store, self._location(entry.path), FailureCause.OUTPUT, note)
            try:
                position = 0
                while position < before[0]:
                    self.store.cancellation.check()
                    chunk = os.pread(fd, min(CHUNK, before[0] - position), position)
                    if not chunk:
                        break
                    writer.write(chunk)
                    position += len(chunk)
                if _signature(fd) != before and not accept_torn:
                    raise _Changed
                writer.finish()
            except (BaseException, Cancelled, DataError):
                writer.abort()
                raise
            return before


def _signature(fd: int) -> Signature:
    status = os.fstat(fd)
    return (status.st_size, status.st_mtime_ns, status.st_ino)


def remove_record(state: Path) -> None:
    """Forget what was synced (a new attempt starts from S3 alone)."""
    with contextlib.suppress(FileNotFoundError):
        (state / "checkpoints.json").unlink()
