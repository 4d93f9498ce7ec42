"""One process per cluster: owns the cluster's network namespace and everything that leads out of it.

    main(folder, descriptor that gets the sign of readiness), forked from `zygote`

Invariants: it outlives the agent, and ends when it is told (SIGTERM) or its folder is removed, and the namespaces with
it. A child, the holder, lives in the namespaces and opened the listening sockets there; this process stays outside and
takes connections from inside to the targets. A process cannot do both: who entered a user namespace has no way back.
"""

import asyncio
import contextlib
import fcntl
import functools
import json
import os
import resource
import select
import signal
import socket
import sys
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from trainshed_worker.sandbox import credentials, egress, forwarder, privileges, procs, syscalls
from trainshed_worker.sandbox.container import BRIDGE
from trainshed_worker.sandbox.netlink import Netlink
from trainshed_worker.sandbox.netplan import (
    BRIDGE_ADDRESS,
    CREDENTIALS_ADDRESS,
    CREDENTIALS_PORT,
    EGRESS_PORT,
    PREFIX_LENGTH,
    NetPlan,
)
from trainshed_worker.sandbox.network import PLAN_FILE, STATE_FILE, TOKENS_FILE, NetdState
from trainshed_worker.sandbox.spawn import report
from trainshed_worker.sandbox.spec import SandboxError, read_json, write_atomic

FOLDER_CHECK_SECONDS = 1.0
BACKLOG = 512

Streams = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Plans:
    """The plan on disk, read again when the file has changed."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / PLAN_FILE
        self._stamp = (0, 0)
        self.current = self.read()

    def read(self) -> NetPlan:
        with contextlib.suppress(FileNotFoundError):  # the folder is being removed: the last plan holds
            status = os.stat(self._path)
            if (status.st_mtime_ns, status.st_ino) != self._stamp:
                raw = read_json(self._path)
                if raw is not None:
                    self.current = NetPlan.from_dict(raw)
                    self._stamp = (status.st_mtime_ns, status.st_ino)
        return self.current


def hold(channel: socket.socket, plan: NetPlan) -> NoReturn:
    """Body of the holder: namespaces, bridge, listening sockets; then wait for the parent's end."""
    try:
        privileges.die_with_parent()
        procs.close_all_but([channel.fileno()])
        user_namespace = not privileges.is_privileged()
        if user_namespace:
            privileges.enter_new_user_namespace()
        syscalls.unshare(syscalls.CLONE_NEWNET)
        with Netlink() as net:
            net.up("lo")
            net.add_bridge(BRIDGE)
            net.add_address(BRIDGE, BRIDGE_ADDRESS, PREFIX_LENGTH)
            net.add_address(BRIDGE, CREDENTIALS_ADDRESS, 32)
            net.up(BRIDGE)
        sockets = [] if plan.isolated else _listen(plan)
        facts = json.dumps({"user_namespace": user_namespace}).encode()
        socket.send_fds(channel, [facts], [item.fileno() for item in sockets])
        for item in sockets:
            item.close()
        select.select([channel], [], [])
    except OSError as error:
        channel.send(json.dumps({"error": str(error)}).encode())
    finally:
        os._exit(0)


def _listen(plan: NetPlan) -> list[socket.socket]:
    """In the order: credentials, egress, forwards."""
    places = [(CREDENTIALS_ADDRESS, CREDENTIALS_PORT), (BRIDGE_ADDRESS, EGRESS_PORT)]
    places += [(BRIDGE_ADDRESS, forward.port) for forward in plan.forwards]
    return [socket.create_server(place, backlog=BACKLOG) for place in places]


@dataclass(frozen=True)
class Holder:
    """The child that holds the namespaces. `channel` is kept open for life: its end is the child's sign to go."""

    pid: int
    user_namespace: bool
    sockets: list[socket.socket]
    channel: socket.socket


def start_holder(plan: NetPlan) -> Holder:
    """Fork the holder and wait until its network stands. Raises SandboxError."""
    channel, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        channel.close()
        hold(inside, plan)
    inside.close()
    data, descriptors, _, _ = socket.recv_fds(channel, 65536, 250)
    facts: dict[str, Any] = json.loads(data) if data else {"error": "the holder of the namespaces died"}
    if "error" in facts:
        os.waitpid(pid, 0)
        raise SandboxError(f"the cluster's network cannot be made: {facts['error']}")
    sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
    return Holder(pid, facts["user_namespace"], sockets, channel)


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, plans: Plans, name: str) -> None:
    target = next(forward for forward in plans.read().forwards if forward.name == name)
    try:
        connection = await forwarder.connect(target.host, target.target_port)
    except OSError as error:
        print(f"forward {name} to {target.host}:{target.target_port}: {error}", file=sys.stderr, flush=True)
        forwarder.abort(writer)
        return
    await forwarder.join((reader, writer), connection)


async def _credentials(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tokens: Path) -> None:
    await credentials.serve(reader, writer, tokens)


async def _egress(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, plans: Plans) -> None:
    plan = plans.read()
    await egress.serve(reader, writer, plan.secret, plan.egress_allow)


async def _guarded(serve: Streams, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection's failure is its own."""
    try:
        await serve(reader, writer)
    except (OSError, EOFError) as error:
        print(f"connection ended: {error!r}", file=sys.stderr, flush=True)
    finally:
        writer.close()


async def serve(directory: Path, plans: Plans, holder: Holder) -> None:
    """Until SIGTERM, the folder's removal or the holder's end."""
    plan = plans.current
    services: list[Streams] = [
        functools.partial(_credentials, tokens=directory / TOKENS_FILE),
        functools.partial(_egress, plans=plans),
        *(functools.partial(_forward, plans=plans, name=forward.name) for forward in plan.forwards),
    ]
    servers = [
        await asyncio.start_server(functools.partial(_guarded, service), sock=item, limit=forwarder.BUFFER)
        for service, item in zip(services, holder.sockets, strict=False)  # isolated: no sockets at all
    ]
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    holder_fd = os.pidfd_open(holder.pid)
    loop.add_reader(holder_fd, ended.set)
    identity = os.stat(directory).st_ino
    while not ended.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), FOLDER_CHECK_SECONDS)
        try:
            if os.stat(directory).st_ino != identity or not (directory / PLAN_FILE).exists():
                ended.set()
        except FileNotFoundError:
            ended.set()
    loop.remove_reader(holder_fd)
    for server in servers:
        server.close()


def main(folder: str, ready_fd: int) -> int:
    os.umask(0o077)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # two descriptors for each connection
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    directory = Path(folder)
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        plans = Plans(directory)
        holder = start_holder(plans.current)
        state = NetdState(
            pid=os.getpid(),
            start=procs.start_time(os.getpid()) or 0,
            holder_pid=holder.pid,
            holder_start=procs.start_time(holder.pid) or 0,
            user_namespace=holder.user_namespace,
        )
        write_atomic(directory / STATE_FILE, json.dumps(asdict(state)))
    except BlockingIOError:
        report(ready_fd, {"error": f"another netd is starting in {directory}; try again"})
        return 1
    except (OSError, SandboxError) as error:
        traceback.print_exc()
        report(ready_fd, {"error": str(error)})
        return 1
    report(ready_fd, {"ready": True})
    try:
        asyncio.run(serve(directory, plans, holder))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(holder.pid, signal.SIGKILL)
        os.waitpid(holder.pid, 0)
    return 0
