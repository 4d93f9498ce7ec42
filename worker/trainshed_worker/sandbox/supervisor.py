"""One detached process per running instance: makes the sandbox, owns its pipes, spool and exit record.

    main(instance directory, descriptor that gets the sign of readiness), forked from `zygote` or a preloaded parent
    spare(its own directory, the same): the same for an instance that it is told of later

Invariants: it does not depend on the agent after it has been started; its end (even by SIGKILL) ends every process of
the instance; state.json is ahead of what runs (init waits until its number is on disk); the exit record is on disk
with fsync before anyone can learn of the end, and all lines of the instance are in the spool before that.

It has one thread for ever: a process that has unshared its PID namespace cannot start another.
"""

import contextlib
import fcntl
import json
import os
import re
import select
import signal
import socket
import time
import traceback
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from trainshed_worker.sandbox import cgroups, container, control, init, plain, privileges, procs, seccomp, syscalls
from trainshed_worker.sandbox.endings import Endings
from trainshed_worker.sandbox.network import ClusterNetwork
from trainshed_worker.sandbox.output import COALESCE, Outputs
from trainshed_worker.sandbox.spawn import report
from trainshed_worker.sandbox.spec import (
    SPEC_FILE,
    ExitRecord,
    InstanceState,
    SandboxError,
    SandboxSpec,
    write_atomic,
    write_durably,
)
from trainshed_worker.sandbox.spool import SpoolWriter

STATE_FILE, EXIT_FILE, LOCK_FILE, SPOOL_DIR = "state.json", "exit.json", "lock", "spool"

BUILD_TIMEOUT = 45.0
"""Seconds for init to make the sandbox; less than `spawn.START_TIMEOUT`, so that the starter hears the reason."""


CLIENT_TIMEOUT = 10.0
"""Seconds for whoever has made a spare to connect."""


class Supervisor:
    """The life of one instance: `begin`, `finish`, `run` until the exit record is written."""

    def __init__(self, spec: SandboxSpec) -> None:
        self.spec = spec
        self.state = InstanceState(
            phase="starting",
            supervisor_pid=os.getpid(),
            supervisor_start=procs.start_time(os.getpid()) or 0,
            isolation=spec.isolation,
            instance_id=spec.instance_id,
        )
        self.endings = Endings(spec)
        self.groups = cgroups.Groups()
        self.user_namespace = False
        self.init_pid = 0
        self.uid = 0
        self.paused_until = 0.0
        self.oom_before = _machine_oom_kills()
        self._save()

    def begin(self) -> None:
        """Make what does not depend on the instance. Raises OSError or SandboxError; `end` is due in either case."""
        holder = self._prepare_isolation()
        self.uid = privileges.job_uid(self.spec.slot, self.user_namespace)
        group = f"trainshed-{_file_name(self.spec.instance_id)}"
        self._change(cgroups=cgroups.candidates(group))  # known before they are made: a kill in between leaves none
        self.groups = cgroups.create(group, self.spec.memory_bytes, self.spec.pids, self.spec.cpu_shares)
        self._change(cgroups=self.groups.paths, notices=self.state.notices + self.groups.notices)
        self._enter(holder)
        self._fork_init(holder)

    def adopt(self, spec: SandboxSpec) -> None:
        """Be the supervisor of this instance from now on. What `begin` has made must fit."""
        old, self.spec = self.spec, spec
        self.endings = Endings(spec)
        self.oom_before = _machine_oom_kills()
        self._change(instance_id=spec.instance_id)
        (old.path / STATE_FILE).unlink()

    def finish(self) -> None:
        """Make the rest and start the commands. Raises as `begin`."""
        spec = self.spec
        if len(spec.commands) > init.MAX_COMMANDS:
            raise SandboxError(f"an instance has at most {init.MAX_COMMANDS} processes, not {len(spec.commands)}")
        self.spool = SpoolWriter(spec.path / SPOOL_DIR)
        self.server = control.listen(spec.path)
        owner = self.uid if spec.isolation == "full" and not self.user_namespace else None
        self.outputs = Outputs(spec.commands, self.spool, owner)
        if spec.isolation == "full":
            container.check_binds(spec)
            container.prepare_files(spec, self.uid, self.user_namespace)
        self._expect("begun")
        socket.send_fds(self.channel, [json.dumps({"start": str(spec.path)}).encode()], self.outputs.ends)
        self.outputs.close_ends()
        message = self._expect("ready")
        tags = [command.tag for command in spec.commands]
        pids = dict(zip(tags, message["ready"], strict=True))
        fresh = dict(zip(tags, message["fresh"], strict=True))
        self._change(phase="running", started_at=time.time(), pids=pids, fresh=fresh)

    def _prepare_isolation(self) -> int:
        """Decide how to isolate; returns the holder of the cluster's network namespace, or 0."""
        spec = self.spec
        if spec.isolation == "none":
            self._change(notices=["no isolation: the job shares the machine's files, processes and network"])
            return 0
        if not seccomp.is_supported():
            self._change(notices=["no system-call filter for this architecture: jobs can make user namespaces"])
        self.user_namespace = not privileges.is_privileged()
        if spec.network != "cluster":
            return 0
        network = ClusterNetwork(spec.network_dir)
        state = network.state()
        if state is None or not network.is_alive():
            raise SandboxError(f"the cluster's network in {spec.network_dir} does not run; call ensure() first")
        self.user_namespace = state.user_namespace
        return state.holder_pid

    def _enter(self, holder: int) -> None:
        if self.spec.isolation == "none":
            syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
            return
        if self.user_namespace:
            if holder:
                privileges.enter_namespace_of(holder, "user", syscalls.CLONE_NEWUSER)
            else:
                privileges.enter_new_user_namespace()
        syscalls.unshare(syscalls.CLONE_NEWPID)  # for the next child, which becomes init

    def _fork_init(self, holder: int) -> None:
        self.channel, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        plan = init.InitPlan(self.spec, inside, self.uid, self.user_namespace, holder)
        self.init_pid = os.fork()
        if self.init_pid == 0:
            init.run(plan)
        inside.close()
        self._change(init_pid=self.init_pid, init_start=procs.start_time(self.init_pid) or 0)
        self.groups.add(self.init_pid)
        self._tell_init({"go": True})

    def _expect(self, what: str) -> dict[str, Any]:
        """Init's next message, which must say `what`. SandboxError with its own words where it does not."""
        self.channel.settimeout(BUILD_TIMEOUT)  # a mount on a dead file system can hang
        message = self._hear_init()
        self.channel.settimeout(None)
        if what not in message:
            raise SandboxError(message.get("failed") or "the sandbox's first process ended before the commands started")
        return message

    def run(self) -> None:
        """Until init has ended."""
        init_fd = os.pidfd_open(self.init_pid)
        poller = select.poll()
        for descriptor in (init_fd, self.channel.fileno(), self.server.fileno(), self.outputs.fileno()):
            poller.register(descriptor, select.POLLIN)
        reading = True
        while True:
            ready = {descriptor for descriptor, _ in poller.poll(self._wait_ms(reading))}
            if self.server.fileno() in ready:
                self._serve()
            if self.channel.fileno() in ready and not self._hear_exits():
                poller.unregister(self.channel.fileno())
            if init_fd in ready:
                break
            if not reading and time.monotonic() >= self.paused_until:
                poller.register(self.outputs.fileno(), select.POLLIN)
                reading = True
            elif self.outputs.fileno() in ready:
                self.outputs.read()
                poller.unregister(self.outputs.fileno())
                self.paused_until = time.monotonic() + COALESCE
                reading = False
            self._act()
        os.close(init_fd)

    def _wait_ms(self, reading: bool) -> float:
        waits = [self.outputs.flush_open_lines(), self.endings.seconds_left()]
        if not reading:
            waits.append(max(0.0, self.paused_until - time.monotonic()))
        known = [wait for wait in waits if wait is not None]
        return max(1.0, min(known) * 1000) if known else 60_000.0

    def _act(self) -> None:
        """What is due now: SIGTERM to all, or SIGKILL."""
        for number in self.endings.due():
            if self.state.phase == "running":
                self._change(phase="stopping")
            if number == signal.SIGKILL:
                self._kill()
            else:
                self._tell_init({"signal": int(number)})

    def _kill(self) -> None:
        if self.spec.isolation == "none":
            self._tell_init({"signal": int(signal.SIGKILL)})
        else:
            os.kill(self.init_pid, signal.SIGKILL)  # our own child, not yet reaped: the number is its own

    def _serve(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError, TimeoutError):
            client, _ = self.server.accept()
            with client:
                client.settimeout(1.0)
                try:
                    answer = self._answer(json.loads(client.recv(control.MAX_MESSAGE)))
                except (ValueError, TypeError, KeyError, AttributeError) as error:
                    answer = {"error": f"malformed request: {error!r}"}
                client.sendall(json.dumps(answer).encode() + b"\n")

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        operation = message.get("op")
        if operation == "stop":
            self.endings.stop(float(message["grace"]))
        elif operation == "kill":
            self.endings.stop(0.0)
        else:
            return {"error": f"unknown operation {operation!r}"}
        return {"ok": True}

    def _hear_exits(self) -> bool:
        message = self._hear_init()
        if "exit" in message:
            self.endings.command_ended(message["exit"], message["status"])
        return bool(message)

    def _hear_init(self) -> dict[str, Any]:
        try:
            data = self.channel.recv(65536)
        except ConnectionResetError:
            data = b""
        value: dict[str, Any] = json.loads(data) if data else {}
        return value

    def _tell_init(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.channel.send(json.dumps(message).encode())

    def end(self, failure: str = "") -> None:
        """Reap init, which proves the instance empty, then the last lines, then the record."""
        reaped, oom_of_init = self.init_pid == 0, False
        if self.init_pid:
            if failure:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.init_pid, signal.SIGKILL)
            _, status = os.waitpid(self.init_pid, 0)
            reaped = True
            oom_of_init = os.WIFSIGNALED(status) and not self.endings.killed
            while self._hear_exits():
                pass
        if self.spec.isolation == "none":
            reaped = not plain.end_marked(self.spec.instance_id, 10.0)
        if hasattr(self, "outputs"):
            self.outputs.finish()
        usage = cgroups.usage(self.groups.paths)
        oom = self.groups.oom_kills() > 0 or (
            not self.groups.paths
            and (self.endings.has_unasked_kill() or oom_of_init)
            and _machine_oom_kills() > self.oom_before
        )
        record = self.endings.record(started_at=self.state.started_at, failure=failure, oom=oom, reaped=reaped)
        self._finish(
            replace(
                record,
                cpu_seconds=usage.cpu_seconds,
                memory_peak_bytes=usage.memory_peak_bytes,
                next_seq=self.spool.next_seq if hasattr(self, "spool") else 0,
            )
        )

    def _finish(self, record: ExitRecord) -> None:
        write_durably(self.spec.path / EXIT_FILE, json.dumps(asdict(record)))
        self._change(phase="exited")
        with contextlib.suppress(OSError):  # prove_empty() removes them otherwise
            cgroups.remove(self.groups.paths)
        if hasattr(self, "spool"):
            self.spool.close()
        if hasattr(self, "server"):
            self.server.close()
            (self.spec.path / control.SOCKET_NAME).unlink(missing_ok=True)

    def _change(self, **fields: Any) -> None:
        self.state = replace(self.state, **fields)
        self._save()

    def _save(self) -> None:
        write_atomic(self.spec.path / STATE_FILE, json.dumps(asdict(self.state)))


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "-", text)


def _machine_oom_kills() -> int:
    with open("/proc/vmstat", encoding="ascii") as file:
        for line in file:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def main(directory: str, ready_fd: int) -> int:
    """See the module."""
    _own_process()
    return _live(Path(directory), ready_fd, None)


def spare(directory: str, ready_fd: int) -> int:
    """Make what is the same for every instance of a slot, then wait: for the folder of an instance, whose supervisor
    this process becomes, or for the end of whoever may ask, with which it ends and leaves nothing."""
    _own_process()
    path = Path(directory)
    supervisor = Supervisor(SandboxSpec.from_json((path / SPEC_FILE).read_text()))
    server = control.listen(path)
    try:
        supervisor.begin()
    except (OSError, SandboxError) as error:
        traceback.print_exc()
        supervisor.end(failure=f"the spare sandbox could not be made: {error}")
        report(ready_fd, {"error": f"the spare sandbox could not be made: {error}"})
        return 1
    report(ready_fd, {"ready": True})
    asked = _await_instance(server)
    server.close()
    if asked is None:
        supervisor.end(failure="the spare sandbox was not needed")
        return 0
    directory, ready_fd = asked
    return _live(Path(directory), ready_fd, supervisor)


def _own_process() -> None:
    os.umask(0o077)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _await_instance(server: socket.socket) -> tuple[str, int] | None:
    """The folder and the descriptor for the sign of readiness; the log becomes this process's output. None where the
    one client that there is went away first."""
    server.settimeout(CLIENT_TIMEOUT)
    try:
        client, _ = server.accept()
    except TimeoutError:
        return None
    with client:
        client.setblocking(True)
        data, descriptors, _, _ = socket.recv_fds(client, control.MAX_MESSAGE, 2)
        if len(descriptors) != 2:
            return None
        ready_fd, log = descriptors
        for target in (1, 2):
            os.dup2(log, target)
        os.close(log)
        syscalls.set_name("trainshed-supervisor")
        client.sendall(b"f")
        return str(json.loads(data)["directory"]), ready_fd


def _live(path: Path, ready_fd: int, begun: Supervisor | None) -> int:
    """The whole life of the instance in `path`; `begun` is a spare's supervisor."""
    lock = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        already = (path / STATE_FILE).exists()
    except BlockingIOError:
        already = True
    if already:
        report(ready_fd, {"already": True})
        if begun is not None:
            begun.end(failure="the instance had been started before")
        return 0
    spec = SandboxSpec.from_json((path / SPEC_FILE).read_text())
    supervisor = begun
    try:
        if supervisor is None:
            supervisor = Supervisor(spec)
            supervisor.begin()
        else:
            supervisor.adopt(spec)
        supervisor.finish()
    except (OSError, SandboxError) as error:
        traceback.print_exc()
        assert supervisor is not None
        supervisor.end(failure=f"the sandbox could not be made: {error}")
        report(ready_fd, {"error": f"the sandbox could not be made: {error}"})
        return 1
    report(ready_fd, {"ready": True})
    supervisor.run()
    supervisor.end()
    return 0
