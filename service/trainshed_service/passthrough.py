"""Hands S3 requests that come in on the main port on to the gateway, so that one AWS_ENDPOINT_URL is enough.

Invariants: path, query and all end-to-end headers go on byte for byte, Host included, so the client's signature holds
at the gateway; bodies are streamed both ways with bounded memory; nothing of a request is kept or logged.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import structlog
from yarl import URL

from trainshed_service.wire.http import Receive, Scope, Send, respond

_log = structlog.get_logger(__name__)
_HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"transfer-encoding",
        b"upgrade",
        b"expect",  # answered here, before the body is read
    )
)
_NOT_BACK = _HOP_BY_HOP | {b"date"}  # the server writes its own
_AUTOMATIC = ("Accept", "Accept-Encoding", "User-Agent", "Content-Type")
_CHUNK_BYTES = 256 * 1024
_CONNECT_SECONDS = 10.0
_SILENCE_SECONDS = 300.0


class _ClientGone(Exception):
    """The client closed its connection in the middle of its body."""


class S3Passthrough:
    """An ASGI application. `open` before the first request, `close` after the last."""

    def __init__(self, gateway_url: str) -> None:
        self._gateway = gateway_url.rstrip("/")
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=_SILENCE_SECONDS),
            auto_decompress=False,
            skip_auto_headers=_AUTOMATIC,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._session is not None
        target = scope["raw_path"].decode("latin-1")
        if scope["query_string"]:
            target += "?" + scope["query_string"].decode("latin-1")
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in scope["headers"]
            if name not in _HOP_BY_HOP
        ]
        names = {name for name, _ in scope["headers"]}
        has_body = b"transfer-encoding" in names or dict(scope["headers"]).get(b"content-length", b"0") != b"0"
        started = False
        try:
            async with self._session.request(
                scope["method"],
                URL(self._gateway + target, encoded=True),
                headers=headers,
                data=_body(receive) if has_body else None,
                allow_redirects=False,
            ) as answer:
                back = [(name.lower(), value) for name, value in answer.raw_headers if name.lower() not in _NOT_BACK]
                started = True
                await send({"type": "http.response.start", "status": answer.status, "headers": back})
                async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
        except _ClientGone:
            return
        except (aiohttp.ClientError, TimeoutError) as error:
            if started:
                raise  # the connection is cut: the client sees that the answer is not whole
            _log.warning("s3.gateway_unreachable", error=type(error).__name__)
            text = (
                b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>ServiceUnavailable</Code>'
                b"<Message>The object store's gateway does not answer. Please try again.</Message></Error>"
            )
            await respond(send, 503, [(b"content-type", b"application/xml"), (b"connection", b"close")], text)


async def _body(receive: Receive) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _ClientGone
        if message.get("body"):
            yield message["body"]
        if not message.get("more_body", False):
            return
