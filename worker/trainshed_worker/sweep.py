"""End every instance and cluster network that this home's agent left running: what `trainshed down` does at the end.

Instances outlive their agent by design. Here they end like those of a machine that is switched off: their supervisors
are killed, so that each leaves the record "supervisor-lost", and the next agent reports a fault of the node, not of the
user's program. Invariant: run after the agent has ended; a process is chosen by what the agent itself wrote, or by the
command line of one of our own supervisors that belongs to this user and this home; never by what a job can write.
"""

import argparse
import os
import signal
import sys
from pathlib import Path

from trainshed_worker.contract.layout import InstanceLayout
from trainshed_worker.sandbox import ClusterNetwork, SandboxError, attach, prove_empty
from trainshed_worker.sandbox.procs import send_signal, start_time, wait_gone

_SUPERVISOR = "trainshed_worker.sandbox.supervisor"
_END_SECONDS = 10.0


def sweep(home: Path) -> list[str]:
    """End everything; returns a sentence for each thing that could not be ended."""
    problems: list[str] = []
    node = home.absolute() / "node"
    instances = [InstanceLayout(folder).instance for folder in _folders(node / "assignments")]
    for directory in instances:
        handle = attach(directory)
        if handle is not None:
            state = handle.state()
            _kill(state.supervisor_pid, state.supervisor_start)
    for pid, started in _supervisors(node):  # of helper commands, dependency installation say
        _kill(pid, started)
    for directory in instances:
        if not (emptiness := prove_empty(directory)):
            problems.append(emptiness.reason)
    for folder in _folders(node / "clusters"):
        try:
            ClusterNetwork(folder).remove()
        except (SandboxError, OSError) as error:
            problems.append(f"the network in {folder} could not be removed: {error}")
    return problems


def _folders(parent: Path) -> list[Path]:
    return [path for path in sorted(parent.iterdir()) if path.is_dir()] if parent.is_dir() else []


def _kill(pid: int, started: int) -> None:
    if send_signal(pid, started, signal.SIGKILL):
        wait_gone(pid, started, _END_SECONDS)


def _supervisors(node: Path) -> list[tuple[int, int]]:
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            owner = entry.stat().st_uid
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if owner != os.geteuid() or _SUPERVISOR.encode() not in words:
            continue
        directory = words[words.index(_SUPERVISOR.encode()) + 1 :][:1]
        started = start_time(int(entry.name))
        if directory and started is not None and Path(os.fsdecode(directory[0])).is_relative_to(node):
            found.append((int(entry.name), started))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="end all instances and networks of a home; its agent must have ended")
    parser.add_argument("--home", type=Path, required=True)
    problems = sweep(parser.parse_args().home)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
