"""Bodies are handed on whole and unchanged, or never complete."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.depth import examples
from trainshed_service.s3 import bodies
from trainshed_service.wire.errors import ApiError
from trainshed_service.wire.signature_errors import SignatureError

KEY = b"k" * 32
SEED = "0" * 64
SCOPE = "20300101/us-east-1/s3/aws4_request"
STAMP = "20300101T000000Z"


async def pieces(data: bytes, cuts: list[int]) -> AsyncIterator[bytes]:
    start = 0
    for cut in sorted({min(cut, len(data)) for cut in cuts} | {len(data)}):
        if cut > start:
            yield data[start:cut]
            start = cut


def sign(text: str) -> str:
    return hmac.new(KEY, text.encode(), "sha256").hexdigest()


def encode(chunks: list[bytes], trailers: list[tuple[str, str]] | None = None) -> bytes:
    """An aws-chunked body as a client would sign it."""
    previous, out = SEED, b""
    empty = hashlib.sha256(b"").hexdigest()
    for chunk in [*chunks, b""]:
        digest = hashlib.sha256(chunk).hexdigest()
        previous = sign(f"AWS4-HMAC-SHA256-PAYLOAD\n{STAMP}\n{SCOPE}\n{previous}\n{empty}\n{digest}")
        out += f"{len(chunk):x};chunk-signature={previous}\r\n".encode() + chunk + (b"\r\n" if chunk else b"")
    if trailers is not None:
        lines = "".join(f"{name}:{value}\n" for name, value in trailers)
        digest = hashlib.sha256(lines.encode()).hexdigest()
        previous = sign(f"AWS4-HMAC-SHA256-TRAILER\n{STAMP}\n{SCOPE}\n{previous}\n{digest}")
        out += "".join(f"{name}:{value}\r\n" for name, value in trailers).encode()
        out += f"x-amz-trailer-signature:{previous}\r\n".encode()
    return out + b"\r\n"


def decoder(data: bytes, length: int, cuts: list[int], *, trailer: bool = False) -> bodies.SignedChunks:
    return bodies.SignedChunks(
        pieces(data, cuts),
        signing_key=KEY,
        seed_signature=SEED,
        scope=SCOPE,
        timestamp=STAMP,
        decoded_length=length,
        signed_trailer=trailer,
    )


async def collect(source: AsyncIterator[bytes]) -> tuple[bytes, Exception | None]:
    got = b""
    try:
        async for piece in source:
            got += piece
    except (SignatureError, ApiError) as error:
        return got, error
    return got, None


payloads = st.lists(st.binary(min_size=1, max_size=300), max_size=5)
cut_lists = st.lists(st.integers(0, 2000), max_size=12)


@given(st.binary(max_size=600), cut_lists)
def test_hashed_body_passes_unchanged(data: bytes, cuts: list[int]) -> None:
    source = bodies.hashed(pieces(data, cuts), hashlib.sha256(data).hexdigest())
    assert asyncio.run(collect(source)) == (data, None)


@given(st.binary(min_size=1, max_size=600), cut_lists)
def test_body_with_another_hash_is_never_complete(data: bytes, cuts: list[int]) -> None:
    got, error = asyncio.run(collect(bodies.hashed(pieces(data, cuts), hashlib.sha256(data + b"x").hexdigest())))
    assert isinstance(error, SignatureError)
    assert bodies.framed(error).code == "XAmzContentSHA256Mismatch"
    assert len(got) < len(data)


@given(payloads, cut_lists)
def test_signed_chunks_decode_whatever_the_pieces(chunks: list[bytes], cuts: list[int]) -> None:
    data = b"".join(chunks)
    assert asyncio.run(collect(decoder(encode(chunks), len(data), cuts).data())) == (data, None)


@given(st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=4), cut_lists, st.data())
@settings(max_examples=examples(50))
def test_one_changed_byte_is_found(chunks: list[bytes], cuts: list[int], draw: st.DataObject) -> None:
    body = bytearray(encode(chunks))
    at = draw.draw(st.integers(0, len(body) - 3))  # the last line break may be missing, it says nothing
    body[at] ^= 1 << draw.draw(st.integers(0, 7))
    data = b"".join(chunks)
    got, error = asyncio.run(collect(decoder(bytes(body), len(data), cuts).data()))
    if error is None:
        # Only the case of a hexadecimal size may differ without a meaning.
        assert got == data and bytes(body).lower() == encode(chunks).lower()
    else:
        assert len(got) < len(data)


@given(payloads, cut_lists)
def test_signed_trailers_are_framed_anew_without_signatures(chunks: list[bytes], cuts: list[int]) -> None:
    data = b"".join(chunks)
    source = decoder(encode(chunks, [("x-amz-checksum-crc32", "AAAAAA==")]), len(data), cuts, trailer=True)
    got, error = asyncio.run(collect(bodies.unsigned_chunks(source)))
    assert error is None
    assert got.endswith(b"0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n")
    assert b"signature" not in got.lower() or b"signature" in data.lower()
    decoded, rest = b"", got
    while True:
        size, _, rest = rest.partition(b"\r\n")
        if int(size, 16) == 0:
            break
        decoded, rest = decoded + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    assert decoded == data


def test_changed_trailer_is_found_before_the_end() -> None:
    body = encode([b"hello"], [("x-amz-checksum-crc32", "AAAAAA==")]).replace(b"AAAAAA==", b"BAAAAA==")
    got, error = asyncio.run(collect(decoder(body, 5, [], trailer=True).data()))
    assert isinstance(error, SignatureError) and got == b""


@pytest.mark.parametrize("length", [4, 6])
def test_announced_length_must_be_met(length: int) -> None:
    got, error = asyncio.run(collect(decoder(encode([b"hello"]), length, []).data()))
    assert isinstance(error, ApiError) and error.code == "IncompleteBody"
    assert len(got) < 5


def test_body_that_ends_early() -> None:
    body = encode([b"hello", b"world"])
    got, error = asyncio.run(collect(decoder(body[:-40], 10, []).data()))
    assert isinstance(error, ApiError) and error.code == "IncompleteBody"
    assert len(got) < 10


def test_chunk_without_signature_is_refused() -> None:
    _, error = asyncio.run(collect(decoder(b"5\r\nhello\r\n0\r\n\r\n", 5, []).data()))
    assert isinstance(error, ApiError) and error.code == "InvalidChunk"


def test_trailer_that_was_not_announced_is_refused() -> None:
    body = encode([b"hello"])[:-2] + b"x-amz-checksum-crc32:AAAA\r\n\r\n"
    got, error = asyncio.run(collect(decoder(body, 5, []).data()))
    assert isinstance(error, ApiError) and got == b""


def test_endless_line_is_cut_off() -> None:
    _, error = asyncio.run(collect(decoder(b"1" * 100_000, 5, list(range(0, 100_000, 1000))).data()))
    assert isinstance(error, ApiError) and error.code == "InvalidChunk"
