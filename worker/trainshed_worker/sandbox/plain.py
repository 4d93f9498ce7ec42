"""What remains to be done where a machine can make no namespaces: find an instance's processes by a mark in their
environment, and put host paths in place of the sandbox's.

Invariant: weaker than a PID namespace and said so; a process that clears its environment and leaves its session is not
found, so no clean hand-over between roles is claimed in this mode.
"""

import contextlib
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

from trainshed_worker.sandbox.spec import Bind, Command

MARK = "TRAINSHED_INSTANCE_ID"


def marked(instance_id: str) -> list[int]:
    """Processes whose start environment carries this instance's mark."""
    needle = f"{MARK}={instance_id}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            with contextlib.suppress(OSError):
                if needle in Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                    found.append(int(entry))
    return found


def end_marked(instance_id: str, timeout: float) -> list[int]:
    """SIGKILL them until none is left or `timeout` seconds passed; returns those that remain."""
    if not instance_id:
        return []
    end = time.monotonic() + timeout
    while True:
        left = marked(instance_id)
        if not left or time.monotonic() > end:
            return left
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def localize(command: Command, binds: list[Bind]) -> Command:
    """The command with each bind's target replaced by its source in arguments, environment and folder."""
    pairs = sorted(((b.target, b.source) for b in binds if b.target != b.source), key=lambda pair: -len(pair[0]))

    def local(text: str) -> str:
        for target, source in pairs:
            text = ":".join(_replace_prefix(part, target, source) for part in text.split(":"))
        return text

    return replace(
        command,
        argv=[local(item) for item in command.argv],
        env={key: local(value) for key, value in command.env.items()},
        cwd=local(command.cwd),
    )


def _replace_prefix(text: str, target: str, source: str) -> str:
    if text == target or text.startswith(target + "/"):
        return source + text[len(target) :]
    return text
