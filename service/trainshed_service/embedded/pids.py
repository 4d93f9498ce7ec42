"""Process identities on disk, `<pid> <start time>`: a number given to another process is never taken for ours."""

from __future__ import annotations

import os
import select
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from trainshed_service.embedded.home import write_private


@dataclass(frozen=True)
class ProcessId:
    """`started` is the kernel's start time of the process, in clock ticks since boot."""

    pid: int
    started: int


def start_time(pid: int) -> int | None:
    """Start time in ticks; None where no such process lives (a zombie does not)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def note(path: Path, pid: int) -> None:
    """Write the identity of a living process."""
    started = start_time(pid)
    if started is not None:
        write_private(path, f"{pid} {started}\n")


def living(path: Path) -> ProcessId | None:
    """The process that the file names, if that very process still lives."""
    try:
        pid, started = map(int, path.read_text().split())
    except (FileNotFoundError, ValueError):
        return None
    return ProcessId(pid, started) if start_time(pid) == started else None


def end(process: ProcessId, grace: float, number: signal.Signals = signal.SIGTERM) -> None:
    """Ask by `number`, after `grace` seconds SIGKILL; returns when it is gone. It need not be our child."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        if start_time(process.pid) != process.started:
            return
        signal.pidfd_send_signal(handle, number)
        # A halted process takes no signal until it goes on.
        signal.pidfd_send_signal(handle, signal.SIGCONT)
        if not _gone(handle, grace):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            _gone(handle, 10.0)
    except ProcessLookupError:
        return
    finally:
        os.close(handle)


def _gone(handle: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if poll.poll(left * 1000):
            return True
    return False
