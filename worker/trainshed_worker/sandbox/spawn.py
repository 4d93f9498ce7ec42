"""Starting this package's own long-lived processes (supervisor, netd) so that they outlive the agent.

Invariant: such a process has its own session, none of the agent's descriptors and none of its environment, and `spawn`
returns only after it has said that it is ready, or why not. Safe to call from several threads.
"""

import json
import os
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from trainshed_worker.sandbox.procs import wait_readable
from trainshed_worker.sandbox.spec import SandboxError

PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])
START_TIMEOUT = 60.0


@dataclass(frozen=True)
class _Zygote:
    owner: int
    process: subprocess.Popen[bytes]
    channel: socket.socket


_lock = threading.Lock()
_zygote: _Zygote | None = None


def warm_up() -> None:
    """Start the process that later starts are forked from, so that the first of them need not wait for it."""
    with _lock:
        _ensure_zygote()


class Parent(Protocol):
    """A process other than the zygote that can be forked for a supervisor (`preload`), or can become it (`spare`)."""

    def ask(self, message: bytes, descriptors: list[int]) -> bool:
        """Hand it the request; False where it does not live any more and so has forked nothing that would answer."""


def spawn(
    module: Literal["supervisor", "spare", "netd"], directory: Path, log_name: str, *parents: Parent
) -> dict[str, Any]:
    """Run `main` of that module for `directory`, detached, and return the object that it reports.

    The first of `parents` that can does it, else the zygote. Raises SandboxError with the process's own words where it
    failed.
    """
    message = json.dumps({"module": module, "directory": str(directory.absolute())}).encode()
    # a parent that does not answer gives way to the zygote, and a zygote that was killed is replaced once
    for ask in [*(parent.ask for parent in parents), _ask, _ask]:
        read_end, write_end = os.pipe()
        log = os.open(directory / log_name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            try:
                forked = ask(message, [write_end, log])
            finally:
                os.close(write_end)
                os.close(log)
            answer = _read_answer(read_end, directory / log_name)
        finally:
            os.close(read_end)
        if answer is not None:
            return answer
        if forked:
            break
        # the end of the pipe says that nothing lives that had this request: asking again starts no second one
    raise SandboxError(f"it ended before it was ready; see {directory / log_name}")


def _ask(message: bytes, descriptors: list[int]) -> bool:
    """Hand the request to the zygote; False where the zygote died before it said that it had forked."""
    with _lock:
        channel = _ensure_zygote().channel
        try:
            socket.send_fds(channel, [message], descriptors)
            if channel.recv(1):
                return True
        except (BrokenPipeError, ConnectionResetError):
            pass  # the same as an end of the channel
        _ensure_zygote(renew=True)
        return False


def _ensure_zygote(renew: bool = False) -> _Zygote:
    """Call with the lock held."""
    global _zygote
    current = _zygote
    usable = current is not None and current.owner == os.getpid() and current.process.poll() is None
    if current is not None and usable and not renew:
        return current
    if current is not None:
        current.channel.close()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        # -S: this package needs the standard library alone, and site-packages cost most of an interpreter's start
        process = subprocess.Popen(
            [sys.executable, "-S", "-s", "-m", "trainshed_worker.sandbox.zygote", str(theirs.fileno())],
            cwd="/",
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": PACKAGE_ROOT, "LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
    _zygote = _Zygote(os.getpid(), process, ours)
    return _zygote


def _read_answer(read_end: int, log: Path) -> dict[str, Any] | None:
    """What the started process reports; None where it ended without a word."""
    data = b""
    while wait_readable(read_end, START_TIMEOUT):
        part = os.read(read_end, 65536)
        if not part:
            break
        data += part
    else:
        raise SandboxError(f"no sign of readiness within {START_TIMEOUT:g} s; see {log}")
    if not data:
        return None
    answer = json.loads(data)
    if not isinstance(answer, dict):
        raise SandboxError(f"unexpected sign of readiness; see {log}")
    if "error" in answer:
        raise SandboxError(str(answer["error"]))
    return answer


def report(write_end: int, answer: dict[str, Any]) -> None:
    """Tell the starter, if it still listens, and close the channel."""
    try:
        os.write(write_end, json.dumps(answer).encode())
    except BrokenPipeError:
        pass  # the starter was killed meanwhile; whoever attaches reads the state file
    finally:
        os.close(write_end)
