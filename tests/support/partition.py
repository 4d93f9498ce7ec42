"""A network that can lose everything: a TCP forwarder which, while it is cut, passes nothing on and closes nothing."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from types import TracebackType

_CHUNK = 65_536


class Network:
    """Forwards `url` to the service. What was connected before a cut stays lost after it, as behind a router that has
    forgotten it; what is connected meanwhile is heard of when it is mended."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._selector = selectors.DefaultSelector()
        self._peers: dict[socket.socket, socket.socket] = {}
        self._lost: set[socket.socket] = set()
        self._connected = threading.Event()
        self._connected.set()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="network", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Network:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._connected.set()
        self._thread.join(10)
        for each in (self._listener, *self._peers, *self._lost):
            each.close()
        self._selector.close()

    def cut(self) -> None:
        with self._lock:
            self._connected.clear()
            for each in self._peers:
                self._selector.unregister(each)
            self._lost |= self._peers.keys()
            self._peers.clear()

    def mend(self) -> None:
        self._connected.set()

    def _run(self) -> None:
        while not self._over.is_set():
            self._connected.wait()
            with self._lock:
                if not self._connected.is_set():
                    continue
                for key, _ in self._selector.select(0.02):
                    self._forward(key.fileobj)  # type: ignore[arg-type]

    def _forward(self, source: socket.socket) -> None:
        if source is self._listener:
            client, _ = self._listener.accept()
            server = socket.create_connection(("127.0.0.1", self._target))
            for one, other in ((client, server), (server, client)):
                self._peers[one] = other
                self._selector.register(one, selectors.EVENT_READ)
            return
        if source not in self._peers:
            return
        data = b""
        with contextlib.suppress(ConnectionError):
            data = source.recv(_CHUNK)
            if data:
                self._peers[source].sendall(data)
                return
        for each in (source, self._peers[source]):
            self._selector.unregister(each)
            del self._peers[each]
            each.close()
