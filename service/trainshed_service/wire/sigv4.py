"""Verification of AWS request signatures: SigV4 in headers or query, and SigV2 in the query (S3 only). No I/O.

    signed = parse(method, raw_path, query_string, headers, framing=Framing.S3)
    key = identity.lookup_key(...)                      # by signed.access_key_id; None where there is none
    proof = verify(signed, key, body_sha256=None, now=clock.now(), services={"s3"})

Invariants:

* `verify` returns only where the signature was made with the key's secret over this very method, path, query and
  headers, within the allowed time, and (given `body_sha256`) over this body. Everything else raises `SignatureError`,
  whose `framed(framing)` gives the error in the words of the service that was called.
* Whatever the signature covers is taken from the request as it came over the wire (the raw path), never re-built.
* Secrets are compared in constant time and appear in no error.

S3 bodies are streamed, so there `body_sha256` is None and the caller looks at `proof.payload`: HASHED means that it
must compare the streamed body's SHA-256 with `proof.payload_sha256` (`check_body`) before it acts on the body;
STREAMING_SIGNED that each chunk carries a signature; the first one chains to `proof.seed_signature`, all are made with
`proof.signing_key`.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64encode
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Protocol

from trainshed_service.wire.canonical import (
    canonical_headers,
    canonical_paths,
    canonical_queries,
    decode_parameter,
    encode,
    query_pairs,
    text,
    v2_resources,
)
from trainshed_service.wire.signature_errors import AuthFailure, Framing, SignatureError
from trainshed_service.wire.signed_request import (
    ALGORITHM,
    Scheme,
    SignedRequest,
    credential_service,
    parse,
    single_header,
    stamp,
)

__all__ = [
    "AuthFailure",
    "Framing",
    "Payload",
    "Proof",
    "Scheme",
    "SecretRecord",
    "SignatureError",
    "SignedRequest",
    "check_body",
    "credential_service",
    "parse",
    "verify",
]

MAX_SKEW_SECONDS = 15 * 60
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
_HEX_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


class Payload(StrEnum):
    """What the signature says about the body."""

    HASHED = "hashed"
    UNSIGNED = "unsigned"
    STREAMING_UNSIGNED_TRAILER = "streaming-unsigned-trailer"
    STREAMING_SIGNED = "streaming-signed"
    STREAMING_SIGNED_TRAILER = "streaming-signed-trailer"

    @property
    def aws_chunked(self) -> bool:
        """The body comes in aws-chunked framing."""
        return self not in (Payload.HASHED, Payload.UNSIGNED)


_PAYLOAD_MARKERS = {
    "UNSIGNED-PAYLOAD": Payload.UNSIGNED,
    "STREAMING-UNSIGNED-PAYLOAD-TRAILER": Payload.STREAMING_UNSIGNED_TRAILER,
    "STREAMING-AWS4-HMAC-SHA256-PAYLOAD": Payload.STREAMING_SIGNED,
    "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER": Payload.STREAMING_SIGNED_TRAILER,
}


class SecretRecord(Protocol):
    """What `verify` needs to know of an access key; `identity.KeyRecord` is one."""

    @property
    def secret(self) -> str: ...
    @property
    def session_token_hash(self) -> str | None:
        """Hex SHA-256 of the session token that must come with the key; None: the key has none."""

    @property
    def active(self) -> bool: ...
    @property
    def expires_at(self) -> float | None:
        """Epoch seconds."""


@dataclass(frozen=True, slots=True)
class Proof:
    """The request is authentic. What is left to check of the body is in `payload`."""

    access_key_id: str
    payload: Payload
    payload_sha256: str | None
    """Hex SHA-256 that the body must have where `payload` is HASHED."""
    seed_signature: str
    signing_key: bytes = field(repr=False)
    scope: str = ""
    timestamp: str = ""


def verify(
    signed: SignedRequest,
    key: SecretRecord | None,
    *,
    body_sha256: str | None,
    now: float,
    services: Collection[str] | None = None,
) -> Proof:
    """Check everything that `parse` left open; see the module. `now` in epoch seconds.

    `key` is what is known of `signed.access_key_id` (None: nothing). `body_sha256` is the hex SHA-256 of the whole
    body, None (S3 only) where the body is still to come. `services` names the credential scopes that are right here.
    """
    if body_sha256 is None and signed.framing is not Framing.S3:
        raise ValueError("only S3 bodies may be verified later")
    if services is not None and signed.service not in services:
        wanted = "' or '".join(sorted(services))
        raise SignatureError(AuthFailure.WRONG_SCOPE, f"Credential should be scoped to correct service: '{wanted}'.")
    _check_time(signed, now)
    if key is None:
        raise SignatureError(AuthFailure.UNKNOWN_KEY)
    if not key.active:
        raise SignatureError(AuthFailure.INACTIVE_KEY)
    _check_token(signed, key)
    if signed.scheme is Scheme.QUERY_V2:
        proof = _verify_v2(signed, key.secret)
    else:
        proof = _verify_v4(signed, key.secret, body_sha256)
    if key.expires_at is not None and key.expires_at <= now:
        raise SignatureError(AuthFailure.EXPIRED_TOKEN)
    return proof


def check_body(proof: Proof, body_sha256: str) -> None:
    """Raise SignatureError(BAD_BODY) where a body that was streamed is not the one that was signed."""
    if proof.payload is Payload.HASHED and not hmac.compare_digest(proof.payload_sha256 or "", body_sha256):
        raise SignatureError(AuthFailure.BAD_BODY)


@lru_cache(maxsize=2048)
def _signing_key(secret: str, date: str, region: str, service: str) -> bytes:
    derived = ("AWS4" + secret).encode()
    for part in (date, region, service, "aws4_request"):
        derived = hmac.digest(derived, encode(part), "sha256")
    return derived


def _check_time(signed: SignedRequest, now: float) -> None:
    if signed.scheme is Scheme.QUERY_V2:
        if signed.signed_at <= now:
            raise SignatureError(AuthFailure.EXPIRED, "Request has expired.")
        return
    if not signed.timestamp.startswith(signed.scope_date):
        raise SignatureError(
            AuthFailure.WRONG_SCOPE,
            "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP:"
            f" '{signed.scope_date}' != '{signed.timestamp[:8]}', from '{signed.timestamp}'.",
        )
    sent, ours = signed.timestamp, stamp(now)
    if signed.expires_in is None:
        if signed.signed_at < now - MAX_SKEW_SECONDS:
            limit = stamp(now - MAX_SKEW_SECONDS)
            detail = f"Signature expired: {sent} is now earlier than {limit} ({ours} - 15 min.)"
            raise SignatureError(AuthFailure.SKEWED, detail)
        if signed.signed_at > now + MAX_SKEW_SECONDS:
            limit = stamp(now + MAX_SKEW_SECONDS)
            detail = f"Signature not yet current: {sent} is still later than {limit} ({ours} + 15 min.)"
            raise SignatureError(AuthFailure.SKEWED, detail)
        return
    if signed.signed_at > now + MAX_SKEW_SECONDS:
        detail = f"Signature not yet current: {sent} is still later than {stamp(now + MAX_SKEW_SECONDS)}"
        raise SignatureError(AuthFailure.NOT_YET_VALID, detail)
    if signed.signed_at + signed.expires_in <= now:
        end = stamp(signed.signed_at + signed.expires_in)
        raise SignatureError(AuthFailure.EXPIRED, f"Signature expired: {end} is now earlier than {ours}")


def _check_token(signed: SignedRequest, key: SecretRecord) -> None:
    if key.session_token_hash is None:
        if signed.session_token:
            raise SignatureError(AuthFailure.BAD_TOKEN)
        return
    given = hashlib.sha256(encode(signed.session_token or "")).hexdigest()
    if not hmac.compare_digest(given, key.session_token_hash):
        raise SignatureError(AuthFailure.BAD_TOKEN)


def _verify_v4(signed: SignedRequest, secret: str, body_sha256: str | None) -> Proof:
    payload, payload_text = _payload_of(signed, body_sha256)
    _check_signed_headers(signed)
    s3 = signed.framing is Framing.S3
    pairs = [pair for pair in query_pairs(signed.query) if pair[0] != "X-Amz-Signature"]
    headers = canonical_headers(signed.headers, signed.signed_headers)
    names = ";".join(signed.signed_headers)
    key = _signing_key(secret, signed.scope_date, signed.region, signed.service)
    given = encode(signed.signature)
    for path in canonical_paths(signed.raw_path, s3=s3):
        for query in canonical_queries(pairs):
            request = f"{signed.method}\n{path}\n{query}\n{headers}\n{names}\n{payload_text}"
            digest = hashlib.sha256(encode(request)).hexdigest()
            to_sign = f"{ALGORITHM}\n{signed.timestamp}\n{signed.scope}\n{digest}"
            expected = hmac.new(key, encode(to_sign), "sha256").hexdigest()
            if hmac.compare_digest(expected.encode(), given):
                hashed = payload_text if payload is Payload.HASHED else None
                return Proof(
                    signed.access_key_id, payload, hashed, expected, key, scope=signed.scope, timestamp=signed.timestamp
                )
    raise SignatureError(AuthFailure.MISMATCH)


def _payload_of(signed: SignedRequest, body_sha256: str | None) -> tuple[Payload, str]:
    """What the body is said to be, and the text of it that is signed."""
    if signed.framing is not Framing.S3:
        return Payload.HASHED, body_sha256 or EMPTY_SHA256
    stated = signed.content_sha256
    if signed.scheme is Scheme.QUERY_V4:
        # Presigned URLs sign no body unless the hash is among the signed headers or parameters.
        in_query = dict(query_pairs(signed.query)).get("X-Amz-Content-Sha256")
        if "x-amz-content-sha256" not in signed.signed_headers:
            stated = in_query or "UNSIGNED-PAYLOAD"
    if stated is None:
        raise SignatureError(AuthFailure.MALFORMED, "Missing required header for this request: x-amz-content-sha256")
    marker = _PAYLOAD_MARKERS.get(stated)
    if marker is not None:
        return marker, stated
    if not _HEX_SHA256.match(stated):
        raise SignatureError(
            AuthFailure.MALFORMED,
            "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, one of the STREAMING- values that HMAC-SHA256 knows,"
            " or a valid sha256 value.",
        )
    if body_sha256 is not None and not hmac.compare_digest(stated, body_sha256):
        raise SignatureError(AuthFailure.BAD_BODY)
    return Payload.HASHED, stated


def _check_signed_headers(signed: SignedRequest) -> None:
    """Headers that change what a request does must be signed, else somebody on the way could add them."""
    absent = [name for name in signed.signed_headers if name not in signed.headers]
    if absent:
        raise SignatureError(AuthFailure.MISMATCH, f"signed but absent: {', '.join(absent)}")
    if signed.framing is Framing.S3:
        wanted = {name for name in signed.headers if name.startswith("x-amz-")} - {"x-amz-content-sha256"}
    else:
        wanted = {"x-amz-target"} & signed.headers.keys()
    unsigned = sorted(wanted.difference(signed.signed_headers))
    if unsigned:
        raise SignatureError(
            AuthFailure.UNSIGNED_HEADERS, f"'{unsigned[0]}' must be a 'SignedHeader' in the AWS Authorization."
        )


def _verify_v2(signed: SignedRequest, secret: str) -> Proof:
    parameters = {name: decode_parameter(value) for name, value in query_pairs(signed.query)}
    custom = {n: ",".join(v.strip() for v in values) for n, values in signed.headers.items() if n.startswith("x-amz-")}
    custom |= {n: v for n, v in parameters.items() if n.startswith("x-amz-") and n not in custom}
    custom_lines = "".join(f"{name}:{custom[name]}\n" for name in sorted(custom))
    given = encode(signed.signature)
    for kind, md5 in _v2_standard_headers(signed, parameters):
        for resource in v2_resources(signed.raw_path, signed.query):
            to_sign = f"{signed.method}\n{md5}\n{kind}\n{signed.timestamp}\n{custom_lines}{resource}"
            expected = b64encode(hmac.digest(secret.encode(), encode(to_sign), "sha1"))
            if hmac.compare_digest(expected, given):
                return Proof(signed.access_key_id, Payload.UNSIGNED, None, text(expected), b"")
    raise SignatureError(AuthFailure.MISMATCH)


def _v2_standard_headers(signed: SignedRequest, parameters: dict[str, str]) -> Sequence[tuple[str, str]]:
    """Content type and MD5 as signed: those of the request, or those that the signer put into the URL."""
    sent = (single_header(signed.headers, "content-type") or "", single_header(signed.headers, "content-md5") or "")
    in_url = (parameters.get("content-type", sent[0]), parameters.get("content-md5", sent[1]))
    return [sent] if sent == in_url else [sent, in_url]
