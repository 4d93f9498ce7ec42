"""Processes named so that a reused number is never mistaken for them: pid plus start time, and pidfds to wait and kill.

Invariant: no signal is sent to a number alone; `open_process` checks the start time after it holds the pidfd.
"""

import contextlib
import os
import select
import signal
import time


def start_time(pid: int) -> int | None:
    """Start of the process in clock ticks since boot; None where there is no such process."""
    fields = _stat_fields(pid)
    return int(fields[19]) if fields else None


def process_state(pid: int) -> str | None:
    """The kernel's letter for the process's state ('R', 'S', 'Z' …), None where there is no such process."""
    fields = _stat_fields(pid)
    return fields[0] if fields else None


def _stat_fields(pid: int) -> list[str]:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text[text.rfind(")") + 2 :].split()


def is_alive(pid: int, started: int) -> bool:
    """True while this very process exists and is no zombie (a zombie init's PID namespace is already empty)."""
    if pid <= 0:
        return False
    fields = _stat_fields(pid)
    return bool(fields) and int(fields[19]) == started and fields[0] not in "ZX"


def open_process(pid: int, started: int) -> int | None:
    """A pidfd of this very process, or None where it is gone. The caller closes it."""
    if pid <= 0:
        return None
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    if start_time(pid) != started:
        os.close(descriptor)
        return None
    return descriptor


def send_signal(pid: int, started: int, number: int) -> bool:
    """Signal this very process; False where it is gone."""
    descriptor = open_process(pid, started)
    if descriptor is None:
        return False
    try:
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def wait_gone(pid: int, started: int, timeout: float | None) -> bool:
    """Wait until this very process has ended (reaped or not); False where `timeout` seconds passed first."""
    descriptor = open_process(pid, started)
    if descriptor is None:
        return True
    try:
        return wait_readable(descriptor, timeout)
    finally:
        os.close(descriptor)


def wait_readable(descriptor: int, timeout: float | None) -> bool:
    """Wait until the descriptor is readable (a pidfd is when its process has ended)."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        left = None if end is None else max(0.0, end - time.monotonic())
        if poller.poll(None if left is None else left * 1000):
            return True
        if left is not None and left <= 0:
            return False


def close_all_but(keep: list[int]) -> None:
    """In a forked child: close every descriptor above 2 that is not in `keep` (locks, sockets, pipes of the parent)."""
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        if descriptor > 2 and descriptor not in keep:
            with contextlib.suppress(OSError):  # the listing's own descriptor is closed already
                os.close(descriptor)
