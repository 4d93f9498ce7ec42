"""Request bodies on their way to the store: checked while they stream, never complete before they are proven.

Invariant: the last bytes of a body are handed on only after everything that its signature says about it was found true.
The store does not keep an object whose body ended early, so a body that lies leaves nothing behind. At most one piece
and one chunk header are held at a time.

aws-chunked framing, as S3 specifies it ("Signature calculations for the Authorization header: transferring payload in
multiple chunks"):
`<hex size>[;chunk-signature=<hex>]CRLF <data> CRLF`, a chunk of size 0, trailer lines, an empty line.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import AsyncIterator

from trainshed_service.s3.flow import ByteStream
from trainshed_service.wire.errors import ApiError
from trainshed_service.wire.signature_errors import AuthFailure, Framing, SignatureError

_EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
_MAX_LINE = 8192
_MAX_TRAILER_LINES = 16
_CHUNK_HEAD = re.compile(rb"([0-9a-fA-F]{1,16})(?:;chunk-signature=([0-9a-f]{64}))?\Z")

Source = AsyncIterator[bytes]


async def as_received(content: ByteStream | None) -> AsyncIterator[bytes]:
    """The pieces of a stream as the socket gave them: not joined, so not copied."""
    while content is not None and (piece := await content.piece()):
        yield piece


def incomplete() -> ApiError:
    return ApiError(
        "IncompleteBody", "You did not provide the number of bytes specified by the Content-Length HTTP header", 400
    )


def _malformed(what: str) -> ApiError:
    return ApiError("InvalidChunk", f"The aws-chunked body is malformed: {what}.", 400)


async def hashed(source: Source, expected_sha256: str) -> AsyncIterator[bytes]:
    """The body, whose last piece comes only if the SHA-256 of all is the expected one (hex).

    Raises SignatureError(BAD_BODY).
    """
    digest = hashlib.sha256()
    held = b""
    async for piece in source:
        if held:
            yield held
        digest.update(piece)
        held = piece
    if not hmac.compare_digest(digest.hexdigest(), expected_sha256):
        raise SignatureError(AuthFailure.BAD_BODY)
    if held:
        yield held


class SignedChunks:
    """Decodes an aws-chunked body whose chunks are signed. `data()` gives the payload; then `trailers` is filled."""

    def __init__(
        self,
        source: Source,
        *,
        signing_key: bytes,
        seed_signature: str,
        scope: str,
        timestamp: str,
        decoded_length: int,
        signed_trailer: bool,
    ) -> None:
        self._reader = _Reader(source)
        self._key = signing_key
        self._previous = seed_signature
        self._prefix = f"{timestamp}\n{scope}\n"
        self._left = decoded_length
        self._signed_trailer = signed_trailer
        self.trailers: list[tuple[str, str]] = []

    async def data(self) -> AsyncIterator[bytes]:
        """The decoded payload, `decoded_length` bytes. Raises SignatureError(MISMATCH), ApiError(InvalidChunk, …)."""
        held = b""
        while True:
            size, signature = _chunk_head(await self._reader.line())
            if size > self._left:
                raise incomplete()
            self._left -= size
            digest = hashlib.sha256()
            taken = 0
            while taken < size:
                piece = await self._reader.some(size - taken)
                taken += len(piece)
                digest.update(piece)
                if held:
                    yield held
                held = piece
            self._check_chunk(signature, digest.hexdigest())
            if size == 0:
                break
            if await self._reader.line():
                raise _malformed("no line break after a chunk")
        if self._left:
            raise incomplete()
        await self._read_trailers()
        if held:
            yield held

    def _check_chunk(self, signature: str, sha256: str) -> None:
        self._check(signature, f"AWS4-HMAC-SHA256-PAYLOAD\n{self._prefix}{self._previous}\n{_EMPTY_SHA256}\n{sha256}")

    def _check(self, signature: str, to_sign: str) -> None:
        expected = hmac.new(self._key, to_sign.encode(), "sha256").hexdigest()
        if not hmac.compare_digest(expected, signature):
            raise SignatureError(AuthFailure.MISMATCH, "a chunk of the body")
        self._previous = expected

    async def _read_trailers(self) -> None:
        lines: list[bytes] = []
        signature: str | None = None
        while line := await self._reader.line(end_is_empty=True):
            if len(lines) == _MAX_TRAILER_LINES:
                raise _malformed("too many trailing headers")
            name, separator, value = line.partition(b":")
            if not separator:
                raise _malformed("a trailing header without a colon")
            if name.strip().lower() == b"x-amz-trailer-signature":
                signature = value.strip().decode("ascii", "replace")
            else:
                lines.append(name.strip().lower() + b":" + value.strip())
        if self._signed_trailer:
            if signature is None:
                raise _malformed("no x-amz-trailer-signature")
            digest = hashlib.sha256(b"".join(line + b"\n" for line in lines)).hexdigest()
            self._check(signature, f"AWS4-HMAC-SHA256-TRAILER\n{self._prefix}{self._previous}\n{digest}")
        elif lines:
            raise _malformed("trailing headers that were not announced")
        for line in lines:
            name, _, value = line.partition(b":")
            self.trailers.append((name.decode("ascii", "replace"), value.decode("ascii", "replace")))


async def unsigned_chunks(chunks: SignedChunks) -> AsyncIterator[bytes]:
    """A body of signed chunks with trailers, framed anew without signatures; the trailers go along."""
    async for piece in chunks.data():
        yield b"%x\r\n" % len(piece) + piece + b"\r\n"
    trailer = "".join(f"{name}:{value}\r\n" for name, value in chunks.trailers)
    yield b"0\r\n" + trailer.encode() + b"\r\n"


def _chunk_head(line: bytes) -> tuple[int, str]:
    match = _CHUNK_HEAD.match(line)
    if match is None:
        raise _malformed("a chunk header")
    if match[2] is None:
        raise _malformed("a chunk without signature")
    return int(match[1], 16), match[2].decode()


class _Reader:
    """Lines and pieces out of a stream of pieces, without copying the pieces more than once."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._buffer = b""

    async def _more(self) -> bool:
        async for piece in self._source:
            if piece:
                self._buffer = self._buffer + piece if self._buffer else piece
                return True
        return False

    async def line(self, *, end_is_empty: bool = False) -> bytes:
        """Up to the next CRLF, without it. The end of the stream is an error, or (asked for) an empty line."""
        while (end := self._buffer.find(b"\r\n")) < 0:
            if len(self._buffer) > _MAX_LINE:
                raise _malformed("a line is too long")
            if not await self._more():
                if end_is_empty and not self._buffer:
                    return b""
                raise incomplete()
        if end > _MAX_LINE:
            raise _malformed("a line is too long")
        line, self._buffer = self._buffer[:end], self._buffer[end + 2 :]
        return line

    async def some(self, limit: int) -> bytes:
        """Between 1 and `limit` bytes."""
        if not self._buffer and not await self._more():
            raise incomplete()
        if len(self._buffer) <= limit:
            piece, self._buffer = self._buffer, b""
        else:
            piece, self._buffer = self._buffer[:limit], self._buffer[limit:]
        return piece


def framed(error: SignatureError | ApiError) -> ApiError:
    return error.framed(Framing.S3) if isinstance(error, SignatureError) else error
