"""Answers that the gateway gives itself, and the editing of the store's: S3's XML errors and plain header rules."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from xml.sax.saxutils import escape

from trainshed_service.wire.errors import ApiError

SERVER = "Trainshed"

_HOP_BY_HOP = frozenset(
    [
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ]
)
_NOT_FORWARDED = _HOP_BY_HOP | frozenset(
    [
        "host",
        "authorization",
        "date",
        "expect",
        "accept-encoding",
        "content-length",
        "x-amz-date",
        "x-amz-security-token",
        "x-amz-content-sha256",
        "x-amz-expected-bucket-owner",
        "x-amz-source-expected-bucket-owner",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
        "x-forwarded-port",
        "forwarded",
        "via",
        "user-agent",
        "cookie",
    ]
)
_NOT_ANSWERED = _HOP_BY_HOP | {"server", "date", "set-cookie"}
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]{1,256}\Z")


def request_headers(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """All headers of a request by name (lower-case already); equal names are joined by commas.

    Raises ApiError(InvalidArgument) for values that are not UTF-8 or hold control characters.
    """
    found: dict[str, str] = {}
    for name, value in pairs:
        if not (value.isascii() and value.isprintable()):
            check_header(name, value)
        found[name] = f"{found[name]},{value}" if name in found else value
    return found


def check_header(name: str, value: str) -> None:
    """Raise ApiError(InvalidArgument) for what cannot stand in a head: it could end the head, or begin another."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ApiError("InvalidArgument", f"The header '{name[:64]}' is not UTF-8.", 400) from None
    if _CONTROL.search(value) or not _TOKEN.match(name):
        raise ApiError("InvalidArgument", f"The header '{name[:64]}' holds control characters.", 400)


def forwarded(headers: dict[str, str]) -> dict[str, str]:
    """The headers of a request that go on to the store."""
    kept = {name: value for name, value in headers.items() if name not in _NOT_FORWARDED}
    encoding = kept.get("content-encoding")
    if encoding is not None and "aws-chunked" in encoding:
        # The framing of the transfer, not of the object: AWS does not store it either.
        rest = [part.strip() for part in encoding.split(",") if part.strip() and part.strip() != "aws-chunked"]
        if rest:
            kept["content-encoding"] = ",".join(rest)
        else:
            del kept["content-encoding"]
    return kept


def answered(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The headers of the store's answer (lower-case names) that go on to the client."""
    kept: dict[str, str] = {}
    for name, value in pairs:
        if name not in _NOT_ANSWERED and not name.startswith(("seaweed-", "x-seaweedfs-")):
            kept[name] = f"{kept[name]},{value}" if name in kept else value
    kept.setdefault("x-amz-request-id", new_request_id())
    return kept


def new_request_id() -> str:
    return secrets.token_hex(8).upper()


def error_xml(error: ApiError, resource: str, request_id: str) -> bytes:
    """S3's error document. `resource` is the path without its query (which may hold a signature)."""
    clean = resource.encode("utf-8", "replace").decode()
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Error><Code>{escape(error.code)}</Code><Message>{escape(error.message)}</Message>"
        f"<Resource>{escape(clean)}</Resource><RequestId>{request_id}</RequestId></Error>"
    ).encode()


def location_xml(region: str) -> bytes:
    body = "" if region == "us-east-1" else escape(region)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<LocationConstraint xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{body}</LocationConstraint>'
    ).encode()


def access_denied() -> ApiError:
    return ApiError("AccessDenied", "Access Denied", 403)


def store_unavailable() -> ApiError:
    """The store did not answer: clients repeat the request on this code."""
    return ApiError("SlowDown", "The object store does not answer at the moment. Please try again.", 503)
