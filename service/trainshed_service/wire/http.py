"""Reading a bounded body from ASGI and sending a whole answer to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from trainshed_service.wire.errors import ApiError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BODY_BYTES = 4 * 1024 * 1024
BODY_TIMEOUT_SECONDS = 60.0


class ClientGone(Exception):
    """The client closed the connection before its request was whole: there is nobody to answer."""


async def read_body(receive: Receive, declared: bytes | None, limit: int = MAX_BODY_BYTES) -> bytes:
    """The whole body. Raises ApiError 413 above `limit` bytes, 408 where it does not come in time."""
    if declared is not None and (not declared.isdigit() or int(declared[:20]) > limit):
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                chunk: bytes = message.get("body", b"")
                size += len(chunk)
                if size > limit:
                    raise _too_large(limit)
                chunks.append(chunk)
                if not message.get("more_body", False):
                    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
    except TimeoutError:
        raise ApiError("RequestTimeout", "The request body did not arrive in time.", 408) from None


async def respond(send: Send, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


def _too_large(limit: int) -> ApiError:
    return ApiError("RequestEntityTooLargeException", f"The request body is larger than {limit} bytes.", 413)
