"""The node's disk log: `<instance dir>/spool/lines.jsonl`, one JSON array `[seq, timestamp_ms, stream, text]` per line.

Invariant: seq counts from 0 without a gap, and a reader sees whole records only: a batch is one write(), and a torn
last record (crash while writing) is cut off before anything is appended. One writer at a time, kept by a file lock.
"""

import fcntl
import json
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from trainshed_worker.sandbox.spec import SandboxError

FILE_NAME = "lines.jsonl"
_TAIL = 1 << 20

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class SpoolWriter:
    """Appends numbered lines. `directory` is the spool folder; it is made where absent.

    Raises SandboxError where another writer holds the spool (the supervisor while an instance runs).
    """

    def __init__(self, directory: str | Path) -> None:
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path = folder / FILE_NAME
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise SandboxError(f"{self.path} is being written by another process; append before or after it") from None
        self._next = _recover(self._fd)

    @property
    def next_seq(self) -> int:
        """The number that the next line gets."""
        return self._next

    def append(self, lines: Iterable[tuple[int, str, str]]) -> int:
        """Append `(timestamp_ms, stream, text)` lines as one batch and return the next seq."""
        seq = self._next
        parts: list[str] = []
        for timestamp_ms, stream, text in lines:
            parts.append(f"[{seq},{timestamp_ms},{_encode(stream)},{_encode(text)}]\n")
            seq += 1
        if not parts:
            return seq
        data = "".join(parts).encode("utf-8", "replace")
        start = os.fstat(self._fd).st_size
        written = os.write(self._fd, data)
        while written < len(data):  # a full disk or a signal: never leave half a record behind
            try:
                written += os.write(self._fd, data[written:])
            except OSError:
                os.ftruncate(self._fd, start)
                raise
        self._next = seq
        return seq

    def sync(self) -> None:
        """Return after all appended lines are on the disk."""
        os.fsync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> "SpoolWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _recover(fd: int) -> int:
    """Cut a torn last record off and return the number after the last whole one."""
    end = os.fstat(fd).st_size
    if end == 0:
        return 0
    window = _TAIL
    while True:
        start = max(0, end - window)
        tail = os.pread(fd, end - start, start)
        whole = tail.rfind(b"\n") + 1
        if whole:
            previous = tail.rfind(b"\n", 0, whole - 1) + 1
            if previous or start == 0:
                break
        elif start == 0:
            os.ftruncate(fd, 0)
            return 0
        window *= 4
    if start + whole < end:
        os.ftruncate(fd, start + whole)
    record = json.loads(tail[previous:whole])
    return int(record[0]) + 1
