"""The head of an HTTP/1.1 request, and plain answers: as much as the credentials endpoint and the egress proxy need.

Invariant: a head is bounded in size and time; what cannot be parsed is refused, never guessed.
"""

import asyncio
from dataclasses import dataclass

MAX_HEAD = 32 * 1024
HEAD_TIMEOUT = 15.0
_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    407: "Proxy Authentication Required",
    502: "Bad Gateway",
    503: "Service Unavailable",
}


class BadRequest(Exception):
    """The head is malformed, too long or too slow."""


@dataclass(frozen=True)
class Head:
    method: str
    target: str
    headers: list[tuple[str, str]]

    def get(self, name: str) -> str | None:
        """The header's value (the first one), by lower-case name."""
        return next((value for key, value in self.headers if key.lower() == name), None)


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """The next head; None where the connection ended before one began."""
    try:
        async with asyncio.timeout(HEAD_TIMEOUT):
            raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            return None
        raise BadRequest("the request ended within its head") from error
    except asyncio.LimitOverrunError as error:
        raise BadRequest("the request's head is too long") from error
    except TimeoutError as error:
        raise BadRequest("the request's head did not come in time") from error
    if len(raw) > MAX_HEAD:
        raise BadRequest("the request's head is too long")
    first, *lines = raw[:-4].decode("latin-1").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise BadRequest("not an HTTP/1 request")
    headers = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadRequest("malformed header")
        headers.append((name, value.strip()))
    return Head(parts[0], parts[1], headers)


def answer(status: int, body: str, content_type: str = "text/plain; charset=utf-8", extra: str = "") -> bytes:
    """A whole answer that ends the connection. `extra`: further header lines, each with its CRLF."""
    data = body.encode()
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {content_type}\r\nContent-Length: {len(data)}\r\n"
        f"Cache-Control: no-store\r\nConnection: close\r\n{extra}\r\n"
    )
    return head.encode("latin-1") + data
