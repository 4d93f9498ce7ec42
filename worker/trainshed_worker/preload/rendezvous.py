"""How ranks meet: who comes before rank 0 listens looks again after milliseconds. torch's own client would sleep for a
quarter to three quarters of a second (`Backoff.hpp`), a multiple of the whole start of a forked rank.

Invariant: torch's client connects as always, with its own time limit and its own errors; all that changes is when its
first try is made. Only what rendezvous handlers make is concerned, in forks of a parent.
"""

import socket
import sys
import time
from datetime import timedelta
from typing import Any

LONGEST = 20.0
"""Seconds after which torch's own client goes on trying."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.02


def hurry() -> None:
    """In the parent, when all is imported: take the place of the name that the rendezvous handlers look up."""
    module = sys.modules.get("torch.distributed.rendezvous")
    original = getattr(module, "TCPStore", None)
    if module is None or original is None:
        return

    def make(cls: type, *arguments: Any, **options: Any) -> Any:
        if not options.get("is_master") and "host_name" in options and "port" in options:
            limit = options.get("timeout")
            seconds = limit.total_seconds() if isinstance(limit, timedelta) else LONGEST
            await_listener(options["host_name"], options["port"], min(LONGEST, seconds / 2))
        return original.__new__(cls)

    # a class, not a function: its errors have no frame of ours
    waiting = type("TCPStore", (original,), {"__new__": make, "__module__": original.__module__})
    module.TCPStore = waiting  # type: ignore[attr-defined]


def await_listener(host: str, port: int, seconds: float) -> bool:
    """Return when something listens there; False where that cannot be known, or not within that time."""
    end, pause = time.monotonic() + seconds, _FIRST_PAUSE
    while True:
        try:
            socket.create_connection((host, port), timeout=seconds).close()
            return True
        except ConnectionRefusedError:
            if time.monotonic() + pause > end:
                return False
        except (OSError, ValueError, OverflowError):
            return False
        time.sleep(pause)
        pause = min(_LONGEST_PAUSE, pause * 1.5)
