"""PID 1 of an instance: starts the commands, reaps every process, passes signals on. Forked from the supervisor.

Invariant: it lives exactly as long as it is useful. When the supervisor is gone (the control socket ends) or the last
command has ended it exits, and the kernel ends whatever else lives in the PID namespace. It never waits for the job.

It makes what is the same for every instance of its slot before it knows which instance it is for: a spare sandbox waits
in between. Nothing of a job is known to it before, and it has all its rights until then.

Messages, one JSON object per packet. To the supervisor: {"begun": true}, {"ready": [pid, …], "fresh": [text, …]},
{"failed": text}, {"exit": index, "status": n}. From it: {"go": true}, {"start": instance folder} with a descriptor per
command that becomes its stdout and stderr, {"signal": n}.
"""

import contextlib
import errno
import json
import os
import select
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from trainshed_worker.sandbox import container, continuation, plain, privileges, procs
from trainshed_worker.sandbox.spec import SPEC_FILE, Command, SandboxError, SandboxSpec

NOT_FOUND, NOT_EXECUTABLE = 127, 126
MAX_COMMANDS = 253
"""Descriptors that one packet carries."""
_MAX_PACKET = 65536


@dataclass(frozen=True)
class InitPlan:
    """What init needs beyond the spec."""

    spec: SandboxSpec
    control: socket.socket
    uid: int
    user_namespace: bool
    bridge_holder: int


def run(plan: InitPlan) -> NoReturn:
    """Body of the forked child; never returns. Only in a grandchild that is to go on in this interpreter,
    `continuation.Script` passes."""
    status = 1
    try:
        privileges.die_with_parent()
        procs.close_all_but([plan.control.fileno()])
        if "go" in _receive(plan.control):
            status = _live(plan)
    except continuation.Script:
        raise
    except (OSError, SandboxError) as error:
        _send(plan.control, {"failed": str(error) or repr(error)})
    except BaseException as error:  # noqa: BLE001 (the last frame of a process: the supervisor writes it down)
        _send(plan.control, {"failed": f"the sandbox's first process failed: {error!r}"})
    os._exit(status)


def _live(plan: InitPlan) -> int:
    os.umask(0o022)
    root = plan.spec.path / "root"
    if plan.spec.isolation == "full":
        container.unshare_all(plan.spec, plan.bridge_holder)
        container.begin_root(plan.spec, plan.uid)
    privileges.limit_resources()
    _send(plan.control, {"begun": True})
    packet, outputs, _, _ = socket.recv_fds(plan.control, _MAX_PACKET, MAX_COMMANDS)
    if not packet:
        return 1
    spec = SandboxSpec.from_json(Path(json.loads(packet)["start"], SPEC_FILE).read_text())
    if spec.isolation == "full":
        container.finish_root(spec, root)
        privileges.drop(plan.uid, plan.user_namespace)
    plan = replace(plan, spec=spec)
    fresh = [continuation.why_fresh(command, spec.isolation) for command in spec.commands]
    return _supervise(plan, _start_all(plan, outputs, fresh), fresh)


def _start_all(plan: InitPlan, outputs: list[int], fresh: list[str]) -> dict[int, int]:
    """Start every command; returns pid → index. A command that cannot be run is a child that exits 126 or 127."""
    for number in range(1, signal.NSIG):
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    children = {}
    for index, command in enumerate(plan.spec.commands):
        pid = os.fork()
        if pid == 0:
            _become(plan, command, outputs[index], goes_on=not fresh[index])
        children[pid] = index
    for descriptor in outputs:
        os.close(descriptor)
    return children


def _become(plan: InitPlan, command: Command, output: int, *, goes_on: bool) -> NoReturn:
    try:
        os.setsid()
        privileges.die_with_parent()
        null = os.open("/dev/null", os.O_RDONLY)
        if command.pty:
            import fcntl
            import termios

            fcntl.ioctl(output, termios.TIOCSCTTY, 0)
        os.dup2(output if command.pty else null, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        if goes_on:  # whoever catches it closes the descriptors: those of objects on the way are closed as they go
            os.chdir(command.cwd)
            raise continuation.Script(command)
        os.closerange(3, 1024)
        environment = dict(command.env)
        if plan.spec.isolation == "none":
            command = plain.localize(command, plan.spec.binds)
            environment = {**command.env, plain.MARK: plan.spec.instance_id}
        os.chdir(command.cwd)
        os.execvpe(command.argv[0], command.argv, environment)
    except OSError as error:
        what = command.cwd if error.filename == command.cwd else command.argv[0]
        os.write(2, f"trainshed: cannot run {what!r}: {error.strerror}\n".encode())
        os._exit(NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE)
    except continuation.Script:
        raise
    except BaseException as error:  # noqa: BLE001 (a child must never go on as init)
        os.write(2, f"trainshed: cannot run {command.argv[0]!r}: {error!r}\n".encode())
        os._exit(NOT_EXECUTABLE)


def _supervise(plan: InitPlan, children: dict[int, int], fresh: list[str]) -> int:
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    _send(plan.control, {"ready": list(children), "fresh": fresh})
    poller = select.poll()
    poller.register(read_end, select.POLLIN)
    poller.register(plan.control.fileno(), select.POLLIN)
    handlers: dict[int, Callable[[], bool]] = {
        read_end: lambda: _drain(read_end),
        plan.control.fileno(): lambda: _obey(plan, children),
    }
    _reap(plan.control, children)
    while children:
        for descriptor, _ in poller.poll():
            if not handlers[descriptor]():
                return 1
        _reap(plan.control, children)
    return 0


def _drain(descriptor: int) -> bool:
    with contextlib.suppress(BlockingIOError):
        while os.read(descriptor, 4096):
            pass
    return True


def _obey(plan: InitPlan, children: dict[int, int]) -> bool:
    message = _receive(plan.control)
    if "signal" in message:
        _signal_all(plan, children, message["signal"])
    return bool(message)


def _signal_all(plan: InitPlan, children: dict[int, int], number: int) -> None:
    """To every process of the instance but this one."""
    if plan.spec.isolation == "full" and os.getpid() == 1:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(-1, number)  # all of the PID namespace
        return
    targets = set(plain.marked(plan.spec.instance_id)) | set(children)
    for pid in targets - {os.getpid(), os.getppid()}:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _reap(control: socket.socket, children: dict[int, int]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        index = children.pop(pid, None)
        if index is not None:
            _send(control, {"exit": index, "status": status})


def _send(control: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        control.send(json.dumps(message).encode())


def _receive(control: socket.socket) -> dict[str, Any]:
    """One message; empty where the supervisor is gone."""
    data = control.recv(_MAX_PACKET)
    value: dict[str, Any] = json.loads(data) if data else {}
    return value
