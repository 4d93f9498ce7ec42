"""Hosts with limited links on one machine, for benchmarks of the runtime: network namespaces on a switch of their own.

Each node is a network namespace with one interface `eth0`, 10.179.0.1 and up, on a bridge that has a namespace of its
own (in the machine's own namespace a container engine's firewall would drop its packets without a word). Both ends of
every link are limited by a token bucket. Invariant: nothing has a name on the machine. A namespace is held by a process
that the kernel ends with the process that made it, so all is gone when that ends, however it ends.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import time
from types import TracebackType

_BURST, _LATENCY = "256kb", "300ms"
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class CannotRun(Exception):
    """This machine cannot have such networks; the text says what is missing."""


def end_with_parent() -> None:
    """For `preexec_fn`: the kernel kills the process when its parent ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Network:
    """`nodes` hosts; enter it to make them. Limits are in Mbit/s and hold for each direction of each link; 0: none."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self._holders: list[subprocess.Popen[bytes]] = []  # the switch's, then the nodes'

    def __enter__(self) -> Network:
        check()
        try:
            self._make()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for holder in self._holders:
            holder.kill()
        for holder in self._holders:
            holder.wait()
        self._holders.clear()

    def address(self, node: int) -> str:
        return f"10.179.0.{node + 1}"

    def command(self, node: int, argv: list[str]) -> list[str]:
        """The command that runs `argv` on a node."""
        return ["nsenter", f"--net=/proc/{self._holders[node + 1].pid}/ns/net", "--", *argv]

    def limit(self, mbit: int) -> None:
        """Sets the rate of every link."""
        for node in range(self.nodes):
            for place, interface in ((node + 1, "eth0"), (0, f"v{node}")):
                if not mbit:
                    self._in(place, "tc", "qdisc", "del", "dev", interface, "root", may_fail=True)
                    continue
                rate = ("tbf", "rate", f"{mbit}mbit", "burst", _BURST, "latency", _LATENCY)
                self._in(place, "tc", "qdisc", "replace", "dev", interface, "root", *rate)

    def _make(self) -> None:
        own = os.readlink("/proc/self/ns/net")
        for _ in range(self.nodes + 1):
            holder = subprocess.Popen(["unshare", "--net", "--", "sleep", "infinity"], preexec_fn=end_with_parent)
            self._holders.append(holder)
        for holder in self._holders:
            deadline = time.monotonic() + 10
            while _namespace(holder) in {None, own}:
                if holder.poll() is not None or time.monotonic() > deadline:
                    raise CannotRun("this process may not make network namespaces (unshare --net failed)")
                os.sched_yield()
        self._in(0, "ip", "link", "set", "lo", "up")
        self._in(0, "ip", "link", "add", "br0", "type", "bridge")
        self._in(0, "ip", "link", "set", "br0", "up")
        for node in range(self.nodes):
            peer = ("peer", "name", "eth0", "netns", str(self._holders[node + 1].pid))
            self._in(0, "ip", "link", "add", f"v{node}", "type", "veth", *peer)
            self._in(0, "ip", "link", "set", f"v{node}", "master", "br0", "up")
            self._in(node + 1, "ip", "addr", "add", f"{self.address(node)}/24", "dev", "eth0")
            self._in(node + 1, "ip", "link", "set", "eth0", "up")
            self._in(node + 1, "ip", "link", "set", "lo", "up")

    def _in(self, place: int, *argv: str, may_fail: bool = False) -> None:
        enter = ["nsenter", f"--net=/proc/{self._holders[place].pid}/ns/net", "--"]
        done = subprocess.run([*enter, *argv], capture_output=True, text=True, check=False)
        if done.returncode and not may_fail:
            raise CannotRun(f"`{' '.join(argv)}` failed: {done.stderr.strip() or done.returncode}")


def check() -> None:
    """CannotRun where something is missing."""
    if os.geteuid() != 0:
        raise CannotRun("limited links need root (network namespaces and tc); run it with sudo")
    missing = [name for name in ("ip", "tc", "nsenter", "unshare") if shutil.which(name) is None]
    if missing:
        raise CannotRun(f"not on PATH: {', '.join(missing)}; install iproute2 and util-linux")


def sent_and_received(interface: str = "eth0") -> tuple[int, int]:
    """Bytes that this process's namespace has sent and received by the interface, with all headers."""
    with open("/proc/self/net/dev") as table:
        for line in table:
            name, _, numbers = line.partition(":")
            if name.strip() == interface:
                fields = numbers.split()
                return int(fields[8]), int(fields[0])
    return 0, 0  # a world without limited links


def _namespace(process: subprocess.Popen[bytes]) -> str | None:
    try:
        return os.readlink(f"/proc/{process.pid}/ns/net")
    except OSError:
        return None
