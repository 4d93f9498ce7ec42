"""HTTP/1.1 towards the store: one connection, one exchange at a time.

Invariants: an answer belongs to the request that was sent last, or the connection is given up; a connection is used
again only after request and answer were both complete. A body whose stream fails breaks the connection, so the store
sees that it is not whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any

import httptools

from trainshed_service.s3.flow import ByteStream, FlowProtocol

_MAX_HEAD = 64 * 1024


class StoreGone(ConnectionError):
    """The store ended the connection, was silent for too long, or sent what is no HTTP."""


class OnceBody:
    """A streamed request body that can be iterated once. `started` is called when the store wants the first byte."""

    def __init__(
        self, pieces: AsyncIterator[bytes], started: Callable[[], Coroutine[Any, Any, None]] | None = None
    ) -> None:
        self._pieces = pieces
        self._started = started
        self.begun = False

    async def begin(self) -> AsyncIterator[bytes]:
        if self.begun:
            raise RuntimeError("a streamed body cannot be sent twice")
        self.begun = True
        if self._started is not None:
            await self._started()
        return self._pieces


class StoreAnswer:
    """The head of an answer, and its body still to come. `release` or `close` it, in every case."""

    __slots__ = ("_connection", "body", "content_length", "headers", "reusable", "status")

    def __init__(
        self,
        connection: StoreConnection,
        status: int,
        headers: list[tuple[str, str]],
        content_length: int | None,
        *,
        reusable: bool,
    ) -> None:
        self._connection = connection
        self.status = status
        self.headers = headers
        """Lower-case names."""
        self.content_length = content_length
        """None: the store did not tell."""
        self.body = ByteStream(connection)
        self.reusable = reusable

    def header(self, name: str) -> str | None:
        return next((value for found, value in self.headers if found == name), None)

    async def read(self) -> bytes:
        """The whole body, of an answer that is known to be small. Raises StoreGone."""
        return await self.body.whole()

    def release(self) -> None:
        """Done; the connection is kept where that is possible."""
        self._connection.done(self)

    def close(self) -> None:
        self.reusable = False
        self._connection.done(self)


class StoreConnection(FlowProtocol):
    """`idle` is called with the connection when it can be used again, `gone` when it is lost."""

    def __init__(
        self, idle: Callable[[StoreConnection], None], gone: Callable[[StoreConnection], None], *, silence: float
    ) -> None:
        super().__init__()
        self._idle = idle
        self._gone = gone
        self._silence = silence
        self.used = False
        """An exchange was complete before."""
        self.idle_since = 0.0
        self.heard = False
        """Something of the answer came."""
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[str, str]] = []
        self._method = ""
        self._answer: StoreAnswer | None = None
        self._head: asyncio.Future[StoreAnswer] | None = None
        self._go_on: asyncio.Future[bool] | None = None
        self._head_bytes = 0
        self._body_left = 0
        self._until_close = False

    def lost_error(self) -> Exception:
        return StoreGone("the store closed the connection")

    # -- the exchange --------------------------------------------------------------------------------------------

    async def exchange(
        self, method: str, head: bytes, body: bytes | OnceBody | None, *, chunked: bool, wait_for_continue: bool
    ) -> StoreAnswer:
        """Send one request and wait for the head of its answer.

        Raises StoreGone, or what the body's own stream raises; the connection is then broken.
        """
        self._method = method
        self._answer = None
        self.heard = False
        self._head = self._loop.create_future()
        self.active_at = self._loop.time()
        try:
            if self.lost or self.transport.is_closing():
                raise self.lost_error()
            if isinstance(body, OnceBody):
                self._go_on = self._loop.create_future() if wait_for_continue else None
                self.transport.write(head)
                if self._go_on is None or await self._go_on:
                    await self._send_body(await body.begin(), chunked=chunked)
            else:
                self.transport.write(head + body if body else head)
            return await self._head
        except BaseException:
            self.transport.abort()
            raise
        finally:
            self._head = self._go_on = None

    async def _send_body(self, pieces: AsyncIterator[bytes], *, chunked: bool) -> None:
        try:
            async for piece in pieces:
                if self._answer is not None:
                    # Answered before all was sent: a refusal. What is left would be taken for another request.
                    self._answer.reusable = False
                    return
                self.active_at = self._loop.time()
                await self.send(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            if chunked:
                await self.send(b"0\r\n\r\n")
        except StoreGone:
            if self._answer is None:
                raise
            self._answer.reusable = False  # it answered, and then closed

    def done(self, answer: StoreAnswer) -> None:
        if self.lost or answer is not self._answer:
            return
        self._answer = None
        if not answer.reusable or not answer.body.complete or self.held:
            self.transport.abort()
            return
        self.used = True
        self.idle_since = self._loop.time()
        self._idle(self)

    def check_silence(self, now: float) -> None:
        """Give up where the store was to say or take something for too long."""
        waits = self._head is not None or (self._answer is not None and not self._answer.body.complete)
        if waits and not self.held and now - self.active_at > self._silence:
            self.transport.abort()

    # -- callbacks -----------------------------------------------------------------------------------------------

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        error = self.lost_error()
        if self._answer is not None:
            if self._until_close and exc is None:
                self._answer.body.finish()
            else:
                self._answer.body.fail(error)
        for waiter in (self._go_on, self._head):
            if waiter is not None and not waiter.done():
                waiter.set_exception(error)
                waiter.exception()  # only one of the two may have a reader
        self._gone(self)

    def data_received(self, data: bytes) -> None:
        self.active_at = self._loop.time()
        self.heard = True
        left = self._body_left
        if left and self._answer is not None:
            self._body_left = max(left - len(data), 0)
            self._answer.body.feed(data if len(data) <= left else data[:left])
            if len(data) >= left:
                self._complete()
            if len(data) > left:
                self._broken()
            return
        if self._head is None and self._answer is None:
            self._broken()  # nobody asked
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._broken()
            return
        if self._answer is None:
            self._head_bytes += len(data)
            if self._head_bytes > _MAX_HEAD:
                self._broken()
        elif self._answer.content_length is not None and not self._answer.body.complete:
            self._body_left = self._answer.content_length - self._answer.body.total

    def _broken(self) -> None:
        if self._answer is not None:
            self._answer.reusable = False
        self.transport.abort()

    def on_message_begin(self) -> None:
        self._headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.decode("latin-1").lower(), value.strip(b" \t").decode("utf-8", "surrogateescape")))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            if status == 100 and self._go_on is not None and not self._go_on.done():
                self._go_on.set_result(True)
            return
        if self._answer is not None or self._head is None:
            self._broken()
            return
        length: int | None = None
        chunked = False
        for name, value in self._headers:
            if name == "content-length":
                length = int(value)
            elif name == "transfer-encoding":
                chunked = True
        answer = StoreAnswer(self, status, self._headers, length, reusable=self._parser.should_keep_alive())
        self._headers = []
        self._answer = answer
        empty = self._method == "HEAD" or status in (204, 304)
        self._until_close = length is None and not chunked and not empty
        self._head.set_result(answer)
        if self._go_on is not None and not self._go_on.done():
            self._go_on.set_result(False)
        if empty:
            self._complete()

    def on_body(self, data: bytes) -> None:
        if self._answer is not None and not self._answer.body.complete:
            self._answer.body.feed(data)

    def on_message_complete(self) -> None:
        if self._answer is not None and not self._answer.body.complete:
            self._complete()

    def _complete(self) -> None:
        """The answer is complete. The parser may still think otherwise (HEAD, bodies that went past it)."""
        assert self._answer is not None
        self._answer.body.finish()
        self._body_left = self._head_bytes = 0
        self._parser = httptools.HttpResponseParser(self)


def request_head(method: str, target: str, headers: Mapping[str, str]) -> bytes:
    """The bytes of a request's head. Names and values must hold no line breaks: see `answers.check_header`."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode("utf-8", "surrogateescape")
