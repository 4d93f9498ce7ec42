"""HTTP/1.1 towards clients: a listener, its connections, and one request at a time on each.

Why not a framework's: half of a small request's cost was theirs, and bodies went through two more buffers. Parsing is
llhttp's (httptools), in its strict form.

Invariants:

* The answers of a connection come in the order of its requests; a request starts when the answer before it is out.
* What is left of a body that nobody read is never taken for a request: such a connection is ended, and (so that the
  client gets to see the answer) read on for at most `LINGER_SECONDS`.
* Heads have at most `MAX_HEAD` bytes. A client that is silent in the middle of a request is cut off.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from email.utils import formatdate
from http import HTTPStatus

import httptools
import structlog

from trainshed_service.s3.flow import ByteStream, FlowProtocol

MAX_HEAD = 64 * 1024
IDLE_SECONDS = 75.0
SILENCE_SECONDS = 300.0
LINGER_SECONDS = 10.0
_SWEEP_SECONDS = 5.0
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_REASONS = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}

log = structlog.get_logger(__name__)


class ClientGone(ConnectionError):
    """The client closed its connection before the body or the answer was complete."""


class Request:
    """A request, and the way to answer it: `respond`, or `begin`, `write` …, `end`."""

    __slots__ = ("_chunked", "answered", "body", "close", "connection", "content_length", "headers", "method", "target")

    def __init__(
        self,
        connection: ClientConnection,
        method: str,
        target: str,
        headers: list[tuple[str, str]],
        content_length: int | None,
        body: ByteStream | None,
        *,
        close: bool,
    ) -> None:
        self.connection = connection
        self.method = method
        self.target = target
        """As it stood in the request line, query included; bytes that are not UTF-8 as surrogates."""
        self.headers = headers
        """Lower-case names, in the order in which they came."""
        self.content_length = content_length
        self.body = body
        """None: the request has no body."""
        self.close = close
        self.answered = False
        self._chunked = False

    def header(self, name: str) -> str:
        """The first one of this (lower-case) name; empty where there is none."""
        return next((value for found, value in self.headers if found == name), "")

    @property
    def received(self) -> int:
        return 0 if self.body is None else self.body.total

    def send_continue(self) -> None:
        if self.connection.lost:
            raise ClientGone("the client is gone")
        self.connection.transport.write(_CONTINUE)

    def respond(self, status: int, headers: Mapping[str, str], body: bytes, *, length: int | None = None) -> None:
        """Send a small answer whole, in one write. `length` where it is not the body's (HEAD)."""
        self._check()
        head = self._head(status, headers, len(body) if length is None else length, None)
        self.connection.transport.write(head + body)
        self.answered = True

    def begin(self, status: int, headers: Mapping[str, str], length: int | None, *, has_body: bool) -> None:
        """Send the head. `length` None: the length is not known, or (without a body) not told."""
        self._check()
        framing = None
        if length is None and has_body:
            self._chunked = True
            framing = "chunked"
        self.connection.transport.write(self._head(status, headers, length, framing))

    async def write(self, piece: bytes) -> None:
        if self._chunked:
            piece = b"%x\r\n%b\r\n" % (len(piece), piece)
        await self.connection.send(piece)

    def end(self) -> None:
        if self._chunked:
            self._check()
            self.connection.transport.write(b"0\r\n\r\n")
        self.answered = True

    def _check(self) -> None:
        if self.connection.lost:
            raise ClientGone("the client is gone")

    def _head(self, status: int, headers: Mapping[str, str], length: int | None, framing: str | None) -> bytes:
        if self.body is not None and not self.body.complete:
            self.close = True  # what is left of it must not be taken for the next request
        if self.connection.server.closing:
            self.close = True
        lines = [_REASONS.get(status) or f"HTTP/1.1 {status} Unknown\r\n"]
        lines += [f"{name}: {value}\r\n" for name, value in headers.items()]
        if length is not None:
            lines.append(f"content-length: {length}\r\n")
        if framing is not None:
            lines.append(f"transfer-encoding: {framing}\r\n")
        if self.close:
            lines.append("connection: close\r\n")
        lines.append(self.connection.server.date_line())
        return "".join(lines).encode("utf-8", "surrogateescape")


Handler = Callable[[Request], Awaitable[None]]


class ClientConnection(FlowProtocol):
    """One client's connection. The methods `on_…` are the parser's callbacks."""

    def __init__(self, server: HttpServer) -> None:
        super().__init__()
        self.server = server
        self.remote = ""
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._headers: list[tuple[str, str]] = []
        self._in_head = False
        self._head_bytes = 0
        self._incoming: Request | None = None
        """The request whose body is being received."""
        self._body_left = 0
        """Bytes of a body of known length that go past the parser."""
        self._current: Request | None = None
        self._waiting: deque[Request] = deque()
        self._task: asyncio.Task[None] | None = None
        self._ending = False
        """No further request is taken from this connection."""

    def lost_error(self) -> Exception:
        return ClientGone("the client is gone")

    @property
    def busy(self) -> bool:
        return self._current is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self.remote = str(peer[0]) if peer else ""
        self.server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.server.connections.discard(self)
        self._waiting.clear()
        if self._incoming is not None and self._incoming.body is not None:
            self._incoming.body.fail(ClientGone("the client ended its request early"))
        self.server.changed()

    def eof_received(self) -> bool:
        return False  # half-closed connections are not kept: the client will read no answer

    # -- parsing -------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self.active_at = self._loop.time()
        left = self._body_left
        if left:
            assert self._incoming is not None and self._incoming.body is not None
            body = self._incoming.body
            if len(data) < left:
                self._body_left = left - len(data)
                if not self._ending:
                    body.feed(data)
                return
            if not self._ending:
                body.feed(data if len(data) == left else data[:left])
            self._body_left = 0
            self._parser = httptools.HttpRequestParser(self)
            self.on_message_complete()
            data = data[left:]
        if data and not self._ending:
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._ending = True  # what follows is no HTTP; the answer to the request itself still goes out
            return
        except httptools.HttpParserError as error:
            self._refuse(400, str(error))
            return
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD:
                self._refuse(431, "the head is too long")
            return
        incoming = self._incoming
        if incoming is not None and incoming.body is not None and incoming.content_length is not None:
            self._body_left = incoming.content_length - incoming.body.total

    def on_message_begin(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        self._target = b""
        self._headers = []

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append(
            (name.decode("latin-1").lower(), value.strip(b" \t").decode("utf-8", "surrogateescape")),
        )

    def on_headers_complete(self) -> None:
        self._in_head = False
        length: int | None = None
        has_body = False
        for name, value in self._headers:
            if name == "content-length":
                length = int(value)
                has_body = length > 0
            elif name == "transfer-encoding":
                has_body = True
        parser = self._parser
        request = Request(
            self,
            parser.get_method().decode("latin-1"),
            self._target.decode("utf-8", "surrogateescape"),
            self._headers,
            length,
            ByteStream(self) if has_body else None,
            close=not parser.should_keep_alive(),
        )
        self._headers = []  # trailers of a chunked body come here; they are of no use
        self._incoming = request
        if self._current is None:
            self._start(request)
        else:
            self._waiting.append(request)
            self.hold()

    def on_body(self, data: bytes) -> None:
        if self._incoming is not None and self._incoming.body is not None and not self._ending:
            self._incoming.body.feed(data)

    def on_message_complete(self) -> None:
        incoming, self._incoming = self._incoming, None
        if incoming is not None and incoming.body is not None:
            incoming.body.finish()

    def _refuse(self, status: int, reason: str) -> None:
        """What came is no request: say so, unless an answer is on its way, and end."""
        log.info("s3.bad_request", reason=reason, remote=self.remote)
        self._ending = True
        if self._incoming is not None and self._incoming.body is not None:
            self._incoming.body.fail(ClientGone("the client's request is malformed"))
        elif self._current is None:
            head = _REASONS[status] + "content-length: 0\r\nconnection: close\r\n" + self.server.date_line()
            self.transport.write(head.encode())
            self._linger()
        else:
            self._current.close = True

    # -- serving -------------------------------------------------------------------------------------------------

    def _start(self, request: Request) -> None:
        self._current = request
        self._task = self._loop.create_task(self._serve(request))

    async def _serve(self, request: Request) -> None:
        try:
            await self.server.handler(request)
        except ConnectionError:
            self.transport.abort()
        except Exception:
            log.exception("an S3 request was not answered")
            self.transport.abort()
        finally:
            self._finished(request)

    def _finished(self, request: Request) -> None:
        self._current = None
        self.active_at = self._loop.time()
        if self.lost:
            return
        if not request.answered:
            self.transport.abort()
        elif request.close or self._ending or self.server.closing:
            if request.body is not None and not request.body.complete:
                self._linger(request.body)
            else:
                self.transport.close()
        else:
            if request.body is not None:
                request.body.discard()
            if self._waiting:
                following = self._waiting.popleft()
                self._start(following)
                self.release()
        self.server.changed()

    def _linger(self, unread: ByteStream | None = None) -> None:
        """End, but read on for a while: a reset would take the answer away from a client that is still sending."""
        self._ending = True
        if unread is not None:
            unread.discard()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._loop.call_later(LINGER_SECONDS, self.transport.abort)

    def sweep(self, now: float) -> None:
        """Cut off who is silent for too long."""
        quiet = now - self.active_at
        if self._current is None:
            if quiet > IDLE_SECONDS:
                self.transport.close()
        elif self._incoming is not None and not self.held and quiet > SILENCE_SECONDS:
            self.transport.abort()


class HttpServer:
    """Make it inside the event loop. `listen`, then `close`."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.connections: set[ClientConnection] = set()
        self.closing = False
        self._loop = asyncio.get_running_loop()
        self._listener: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._idle: asyncio.Event = asyncio.Event()
        self._date = (0, "")

    async def listen(self, host: str, port: int, *, backlog: int = 1024) -> int:
        """Listen; the port (for 0 a free one)."""
        self._listener = await self._loop.create_server(
            lambda: ClientConnection(self), host, port, backlog=backlog, reuse_address=True
        )
        self._sweeper = self._loop.call_later(_SWEEP_SECONDS, self._sweep)
        return int(self._listener.sockets[0].getsockname()[1])

    def date_line(self) -> str:
        """The Date header and the end of a head."""
        now = int(self._loop.time())
        if now != self._date[0]:
            self._date = (now, f"date: {formatdate(usegmt=True)}\r\n\r\n")
        return self._date[1]

    def changed(self) -> None:
        if self.closing and not any(connection.busy for connection in self.connections):
            self._idle.set()

    def _sweep(self) -> None:
        now = self._loop.time()
        for connection in list(self.connections):
            connection.sweep(now)
        self._sweeper = self._loop.call_later(_SWEEP_SECONDS, self._sweep)

    async def close(self, drain_seconds: float) -> None:
        """Take no more; let the requests in progress end, at most so long."""
        self.closing = True
        if self._listener is not None:
            self._listener.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self.connections):
            if not connection.busy:
                connection.transport.close()
        self.changed()
        try:
            async with asyncio.timeout(drain_seconds):
                await self._idle.wait()
        except TimeoutError:
            log.warning("requests were cut off at the end", count=sum(c.busy for c in self.connections))
        for connection in list(self.connections):
            if connection.busy:
                connection.transport.abort()
            else:
                connection.transport.close()
