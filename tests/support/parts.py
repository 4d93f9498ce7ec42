"""The processes of an installation, and their loss."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import psutil

from tests.support.stack import Stack
from tests.support.wait import wait_until
from trainshed_service.embedded import health, pids
from trainshed_service.embedded.home import Home

PARTS = ("store", "gateway", "ingest", "api", "agent")


def parts_of(home: Path) -> dict[str, pids.ProcessId]:
    """All parts of the home that live."""
    found = {name: pids.living(Home(home).pid_path(name)) for name in PARTS}
    return {name: process for name, process in found.items() if process is not None}


def processes_of(home: Path) -> list[str]:
    """Command lines of all processes on the machine that name this home or work in it."""
    found = []
    for process in psutil.process_iter():
        try:
            words, folder = process.cmdline(), process.cwd()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if any(str(home) in word for word in words) or Path(folder).is_relative_to(home):
            found.append(" ".join(words))
    return found


def supervisor_of(stack: Stack) -> pids.ProcessId:
    supervisor = pids.living(Home(stack.home).pid_path("supervisor"))
    assert supervisor is not None, f"no supervisor lives in {stack.home}"
    return supervisor


def outage(stack: Stack, parts: list[str], seconds: float) -> None:
    """Kill the parts and keep them away for so long; returns when others have taken their places and answer.

    The supervisor is halted meanwhile, since it would start them again at once.
    """
    supervisor = supervisor_of(stack).pid
    before = parts_of(stack.home)
    os.kill(supervisor, signal.SIGSTOP)
    try:
        for part in parts:
            os.kill(before[part].pid, signal.SIGKILL)
        threading.Event().wait(seconds)  # the outage itself
    finally:
        os.kill(supervisor, signal.SIGCONT)

    def replaced() -> bool:
        now = parts_of(stack.home)
        return all(part in now and now[part] != before[part] for part in parts)

    wait_until(replaced, timeout=60, what=f"{parts} are started again")
    wait_until_up(stack)


def wait_until_up(stack: Stack) -> None:
    """All parts live and answer."""
    ports = Home(stack.home).read().ports

    def up() -> bool:
        return set(parts_of(stack.home)) == set(PARTS) and all(
            health.answers(ports[name]) for name in ("main", "gateway", "ingest")
        )

    wait_until(up, timeout=90, what=f"all parts in {stack.home} answer")
