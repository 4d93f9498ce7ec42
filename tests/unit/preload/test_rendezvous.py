"""A rank that comes early waits for rank 0 by milliseconds."""

from __future__ import annotations

import socket
import sys
import threading
import time
import types
from datetime import timedelta

import pytest

from trainshed_worker.preload import rendezvous


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_it_returns_as_soon_as_something_listens() -> None:
    port, listening = free_port(), threading.Event()

    def listen() -> None:
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("127.0.0.1", port))
            tried.wait(10)
            server.listen()
            listening.set()
            done.wait(10)

    tried, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=listen)
    thread.start()
    waiter = threading.Thread(target=lambda: found.append(rendezvous.await_listener("127.0.0.1", port, 30.0)))
    found: list[bool] = []
    waiter.start()
    tried.set()
    waiter.join(30)
    assert found == [True]
    assert listening.is_set()
    done.set()
    thread.join()


def test_it_gives_up_in_time_and_where_nothing_can_listen() -> None:
    begin = time.monotonic()
    assert not rendezvous.await_listener("127.0.0.1", free_port(), 0.05)
    assert time.monotonic() - begin < 25


class Store:
    """Stands for torch's class, whose `__init__` connects."""

    def __init__(self, **options: object) -> None:
        if options["port"] == 0:
            raise RuntimeError("as torch says it")
        self.options = options


def test_the_store_is_made_as_before_once_somebody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("torch.distributed.rendezvous")
    monkeypatch.setitem(sys.modules, "torch.distributed.rendezvous", module)
    rendezvous.hurry()  # an older torch without that name
    module.TCPStore = Store  # type: ignore[attr-defined]
    asked: list[tuple[str, int, float]] = []
    monkeypatch.setattr(rendezvous, "await_listener", lambda *arguments: asked.append(arguments))
    rendezvous.hurry()
    options = {"host_name": "algo-1", "port": 7777, "world_size": 2, "timeout": timedelta(seconds=10)}
    store = module.TCPStore(**options, is_master=False)
    assert isinstance(store, Store)
    assert type(store).__name__ == "TCPStore"
    assert asked == [("algo-1", 7777, 5.0)]
    module.TCPStore(**options, is_master=True)
    assert len(asked) == 1
    with pytest.raises(RuntimeError, match="as torch says it") as raised:
        module.TCPStore(**{**options, "port": 0}, is_master=False)
    assert [entry.path.name for entry in raised.traceback if hasattr(entry.path, "name")] == ["test_rendezvous.py"] * 2
