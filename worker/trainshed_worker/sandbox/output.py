"""The pipes (or terminals) of an instance's commands, read in batches into the spool.

Invariant: lines of one command keep their order; everything a process wrote before its end is in the spool when
`finish` returns. Reads are at least `COALESCE` seconds apart, so that ten thousand lines a second cost few wake-ups.
"""

import contextlib
import errno
import fcntl
import os
import select
import time
from dataclasses import dataclass

from trainshed_worker.sandbox.lines import LineSplitter
from trainshed_worker.sandbox.spec import Command
from trainshed_worker.sandbox.spool import SpoolWriter

COALESCE = 0.005
OPEN_LINE_WAIT = 0.5
"""Seconds after which a line without its end (a prompt, a progress text) is logged as it stands."""
FULL_DISK_WAIT = 1.0
"""Seconds between tries while the disk is full: the end of an instance waits for room rather than lose its lines."""
PIPE_BYTES = 1 << 20
_READ = 1 << 18


@dataclass
class _Source:
    command: Command
    splitter: LineSplitter
    touched: float = 0.0


class Outputs:
    """Read ends of all commands. `ends[i]` is the write end for command i, to be closed by `close_ends` once init has
    its own copy."""

    def __init__(self, commands: list[Command], spool: SpoolWriter, owner: int | None) -> None:
        self._spool = spool
        self._sources: dict[int, _Source] = {}
        self._poller = select.epoll()
        self._pending: list[tuple[int, str, str]] = []
        self.ends: list[int] = []
        for command in commands:
            read_end, write_end = os.openpty() if command.pty else os.pipe()
            if not command.pty:
                with contextlib.suppress(PermissionError):  # above the user's pipe quota: the default size does
                    fcntl.fcntl(read_end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            if owner is not None:
                os.fchown(write_end, owner, owner)  # so that the job may open /dev/stdout by its name
            os.set_blocking(read_end, False)
            self._sources[read_end] = _Source(command, LineSplitter())
            self._poller.register(read_end, select.EPOLLIN)
            self.ends.append(write_end)

    def fileno(self) -> int:
        """Readable while any output waits."""
        return self._poller.fileno()

    def close_ends(self) -> None:
        for descriptor in self.ends:
            os.close(descriptor)
        self.ends = []

    def read(self) -> bool:
        """Move what waits to the spool, one read per command; False where nothing did."""
        if not self._store([]):
            return True
        batch: list[tuple[int, str, str]] = []
        ready = self._poller.poll(0)
        now = time.time()
        for descriptor, _ in ready:
            source = self._sources[descriptor]
            data = _read(descriptor)
            if data is None:
                continue
            source.touched = now
            if data:
                lines = source.splitter.feed(data)
            else:
                lines = source.splitter.flush(final=True)
                self._poller.unregister(descriptor)
                del self._sources[descriptor]
                os.close(descriptor)
            self._add(batch, source, lines, now)
        self._store(batch)
        return bool(ready)

    def _store(self, batch: list[tuple[int, str, str]]) -> bool:
        """Append to the spool; where the disk is full the lines wait, and so does the job at its next full pipe."""
        self._pending += batch
        try:
            self._spool.append(self._pending)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            return False
        self._pending = []
        return True

    def flush_open_lines(self) -> float | None:
        """Log lines that stood open for OPEN_LINE_WAIT; returns seconds until the next is due, None where none is."""
        now = time.time()
        batch: list[tuple[int, str, str]] = []
        due: float | None = None
        for source in self._sources.values():
            if not source.splitter.has_open_line:
                continue
            left = source.touched + OPEN_LINE_WAIT - now
            if left <= 0 or left > OPEN_LINE_WAIT:  # the latter: the clock was set back
                self._add(batch, source, source.splitter.flush(), now)
                source.touched = now
                left = OPEN_LINE_WAIT
            due = left if due is None else min(due, left)
        self._store(batch)
        return due

    def note(self, text: str, stream: str) -> None:
        """A line of our own."""
        self._store([(int(time.time() * 1000), stream, text)])

    def finish(self) -> None:
        """After the last process: read to the end of every pipe, then sync the spool."""
        while self._sources and self.read():
            if self._pending:
                time.sleep(FULL_DISK_WAIT)
        batch: list[tuple[int, str, str]] = []
        for descriptor, source in self._sources.items():  # held open from outside: what came so far is all
            self._add(batch, source, source.splitter.flush(final=True), time.time())
            os.close(descriptor)
        self._sources = {}
        while not self._store(batch):
            batch = []
            time.sleep(FULL_DISK_WAIT)
        self._spool.sync()

    @staticmethod
    def _add(batch: list[tuple[int, str, str]], source: _Source, lines: list[str], now: float) -> None:
        stamp, stream, prefix = int(now * 1000), source.command.stream, source.command.prefix
        if prefix:
            batch += [(stamp, stream, prefix + line) for line in lines]
        else:
            batch += [(stamp, stream, line) for line in lines]


def _read(descriptor: int) -> bytes | None:
    """Bytes; empty at the end; None where nothing waits."""
    try:
        return os.read(descriptor, _READ)
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno == errno.EIO:  # a terminal whose other side is closed
            return b""
        raise
