"""The body of a request as the store gets it: which check it goes through, and what headers describe it.

Invariant: what the signature says about a body is checked before the store has all of it (see `bodies`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator

from trainshed_service.s3 import bodies
from trainshed_service.s3.exchange import Exchange
from trainshed_service.s3.signing import UNSIGNED_PAYLOAD
from trainshed_service.s3.upstream import OnceBody
from trainshed_service.wire import sigv4
from trainshed_service.wire.errors import ApiError

SMALL = 64 * 1024
"""Bodies up to this size are taken whole."""
_MAX_DOCUMENT = 2 * 1024 * 1024


async def read_document(exchange: Exchange, proof: sigv4.Proof) -> bytes:
    """A small body that the gateway itself must understand, whole and checked. Raises ApiError, SignatureError."""
    if proof.payload.aws_chunked:
        raise ApiError("NotImplemented", "This request's body may not be sent as aws-chunked.", 501)
    length = exchange.request.content_length
    if length is not None and length > _MAX_DOCUMENT:
        raise ApiError("MaxMessageLengthExceeded", "Your request was too big.", 400)
    await exchange.send_continue()
    data = bytearray()
    async for piece in exchange.pieces():
        data += piece
        if len(data) > _MAX_DOCUMENT:
            raise ApiError("MaxMessageLengthExceeded", "Your request was too big.", 400)
    _check(proof, data)
    return bytes(data)


async def for_store(
    exchange: Exchange, proof: sigv4.Proof, document: bytes | None, headers: dict[str, str]
) -> tuple[bytes | OnceBody | None, str]:
    """The body for the store and the content hash that goes with it; sets the headers that describe it.

    `document` is the body where it was read before. Raises ApiError, SignatureError.
    """
    request, payload = exchange.request, proof.payload
    stated = proof.payload_sha256 or UNSIGNED_PAYLOAD
    if document is not None:
        return document, hashlib.sha256(document).hexdigest()
    if request.method in ("GET", "HEAD"):
        return None, UNSIGNED_PAYLOAD
    if payload.aws_chunked:
        return _chunked(exchange, proof, headers)
    length = 0 if request.body is None else request.content_length
    if length is None:
        raise ApiError("MissingContentLength", "You must provide the Content-Length HTTP header.", 411)
    if length <= SMALL:
        # Cheaper to take than to ask the store first whether it wants the body.
        await exchange.send_continue()
        data = b"" if request.body is None else await request.body.whole()
        _check(proof, data)
        return data, stated
    headers["content-length"] = str(length)
    pieces = exchange.pieces()
    if payload is sigv4.Payload.HASHED:
        assert proof.payload_sha256 is not None
        pieces = bodies.hashed(pieces, proof.payload_sha256)
    return _once(exchange, pieces), stated


def _chunked(exchange: Exchange, proof: sigv4.Proof, headers: dict[str, str]) -> tuple[OnceBody, str]:
    request, payload = exchange.request, proof.payload
    decoded = exchange.headers.get("x-amz-decoded-content-length", "")
    if not re.fullmatch(r"\d{1,15}", decoded):
        raise ApiError("MissingContentLength", "You must provide the x-amz-decoded-content-length header.", 411)
    if payload is sigv4.Payload.STREAMING_UNSIGNED_TRAILER:
        if request.content_length is not None:
            headers["content-length"] = str(request.content_length)
        return _once(exchange, exchange.pieces()), "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
    trailer = payload is sigv4.Payload.STREAMING_SIGNED_TRAILER
    chunks = bodies.SignedChunks(
        exchange.pieces(),
        signing_key=proof.signing_key,
        seed_signature=proof.seed_signature,
        scope=proof.scope,
        timestamp=proof.timestamp,
        decoded_length=int(decoded),
        signed_trailer=trailer,
    )
    if trailer:
        return _once(exchange, bodies.unsigned_chunks(chunks)), "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
    del headers["x-amz-decoded-content-length"]
    headers["content-length"] = decoded
    return _once(exchange, chunks.data()), UNSIGNED_PAYLOAD


def _once(exchange: Exchange, pieces: AsyncIterator[bytes]) -> OnceBody:
    return OnceBody(pieces, started=exchange.send_continue)


def _check(proof: sigv4.Proof, data: bytes | bytearray) -> None:
    if proof.payload is sigv4.Payload.HASHED:
        sigv4.check_body(proof, hashlib.sha256(data).hexdigest())
