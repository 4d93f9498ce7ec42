"""Ports of one home: remembered where still free, else chosen, and claimed against other homes while it runs.

Invariant: two supervisors of this machine never hand the same port to their parts. A claim is an abstract unix socket
named after the port: the kernel gives each name once and takes it back when the owner ends, however that happens, and
nothing is left on disk. Against strangers there is no claim; the supervisor sees that a part could not bind its port
and chooses others, except where the user named the port.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Mapping

HOST = "127.0.0.1"
NAMES = ("main", "gateway", "ingest")
NAMED_BY = {"main": "--port", "gateway": "TRAINSHED_GATEWAY_PORT", "ingest": "TRAINSHED_INGEST_PORT"}
# Above well-known services; below the object store's range and the ports that the kernel gives to outgoing connections.
_RANGE = range(10_500, 20_000)


class PortTakenError(RuntimeError):
    """The port that the user asked for is in use; the message says what to do."""


def is_free(port: int) -> bool:
    """Whether a listener could be bound on 127.0.0.1 now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


class PortClaims:
    """The ports of one home; `close` gives them back, as does the end of the process."""

    def __init__(self) -> None:
        self._held: dict[int, socket.socket] = {}

    def choose(self, remembered: Mapping[str, int], named: Mapping[str, int]) -> dict[str, int]:
        """A port for each of NAMES: as `named` by the user, the others as remembered where free.

        Raises PortTakenError where a named one is in use. Earlier claims are given back first.
        """
        self.close()
        chosen: dict[str, int] = {}
        for name, port in named.items():
            if not self._claim(port):
                self.close()
                raise PortTakenError(
                    f"port {port} is in use by another program; give a free one by {NAMED_BY[name]}, or leave it out "
                    "to let Trainshed choose"
                )
            chosen[name] = port
        for name in NAMES:
            if name in chosen:
                continue
            port = remembered.get(name, 0)
            while not port or not self._claim(port):
                port = random.SystemRandom().choice(_RANGE)
            chosen[name] = port
        return chosen

    def close(self) -> None:
        for claim in self._held.values():
            claim.close()
        self._held.clear()

    def _claim(self, port: int) -> bool:
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0trainshed-port-{port}")
        except OSError:
            claim.close()
            return False
        if not is_free(port):
            claim.close()
            return False
        self._held[port] = claim
        return True
