"""Flow control between sockets: what both ends of the gateway, towards clients and towards the store, have in common.

Invariant: of a body at most `STREAM_LIMIT` bytes and one read of the socket are held in memory. A stream whose reader
is slow stops its socket; a socket whose peer is slow stops its writer. Whoever waits on a connection that is lost is
woken with the connection's own error.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import cast

STREAM_LIMIT = 256 * 1024
WRITE_LIMIT = 256 * 1024


class FlowProtocol(asyncio.Protocol):
    """A connection that can be held (not read) and waited for (not written). `lost_error` is what waiters get."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)  # set before anything else happens
        self.lost = False
        self.active_at = 0.0
        """Loop time at which bytes last moved; for whoever ends silent connections."""
        self._loop = asyncio.get_running_loop()
        self._holds = 0
        self._write_paused = False
        self._drained: asyncio.Future[None] | None = None

    def lost_error(self) -> Exception:
        return ConnectionResetError("the connection is lost")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=WRITE_LIMIT)
        self.active_at = self._loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if self._drained is not None and not self._drained.done():
            self._drained.set_exception(self.lost_error())

    # -- reading -------------------------------------------------------------------------------------------------

    @property
    def held(self) -> bool:
        return self._holds > 0

    def hold(self) -> None:
        """Read nothing more until as many `release` as `hold` were called."""
        self._holds += 1
        if self._holds == 1 and not self.lost:
            self.transport.pause_reading()

    def release(self) -> None:
        self._holds -= 1
        if self._holds == 0 and not self.lost:
            self.active_at = self._loop.time()
            self.transport.resume_reading()

    # -- writing -------------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self.active_at = self._loop.time()
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    async def send(self, piece: bytes) -> None:
        """Write, and wait while the peer is slow. Raises `lost_error()`."""
        if self.lost or self.transport.is_closing():
            raise self.lost_error()
        self.transport.write(piece)
        if self._write_paused:
            self._drained = self._loop.create_future()
            try:
                await self._drained
            finally:
                self._drained = None


class ByteStream:
    """The bytes of one body, from a connection's callbacks to one reader. `total` counts all that came."""

    __slots__ = ("_connection", "_error", "_held", "_holding", "_pieces", "_waiter", "complete", "total")

    def __init__(self, connection: FlowProtocol) -> None:
        self._connection = connection
        self._pieces: deque[bytes] = deque()
        self._held = 0
        self._holding = False
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self.complete = False
        self.total = 0

    # -- the connection's side -----------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        self._pieces.append(data)
        self._held += len(data)
        self.total += len(data)
        if self._held > STREAM_LIMIT and not self._holding:
            self._holding = True
            self._connection.hold()
        self._wake()

    def finish(self) -> None:
        """All came."""
        self.complete = True
        self._wake()

    def fail(self, error: Exception) -> None:
        """No more comes. What came may still be read."""
        if not self.complete and self._error is None:
            self._error = error
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -- the reader's side ---------------------------------------------------------------------------------------

    async def piece(self) -> bytes:
        """The next bytes as the socket gave them; empty at the end. Raises what `fail` was told."""
        while not self._pieces:
            if self.complete:
                return b""
            if self._error is not None:
                raise self._error
            self._waiter = self._connection._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        piece = self._pieces.popleft()
        self._held -= len(piece)
        if self._holding and self._held <= STREAM_LIMIT // 2:
            self._holding = False
            self._connection.release()
        return piece

    async def whole(self) -> bytes:
        """Everything; for bodies that are known to be small."""
        if self.complete and len(self._pieces) == 1 and not self._holding:
            self._held = 0
            return self._pieces.popleft()
        pieces = []
        while piece := await self.piece():
            pieces.append(piece)
        return b"".join(pieces)

    def discard(self) -> None:
        """Drop what is held; the connection is read on."""
        self._pieces.clear()
        self._held = 0
        if self._holding:
            self._holding = False
            self._connection.release()
