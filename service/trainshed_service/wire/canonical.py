"""Canonical forms that SigV4 and SigV2 sign, made from what came over the wire, byte for byte.

Pure functions over text. Bytes of the request are decoded as UTF-8 with surrogateescape, so that `encode` gives back
exactly the bytes that came, whatever they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote, quote_from_bytes, unquote_to_bytes

HeaderPairs = Iterable[tuple[bytes | str, bytes | str]]

_UNRESERVED = "-_.~"

V2_SUBRESOURCES = frozenset(
    {
        "accelerate",
        "acl",
        "analytics",
        "cors",
        "defaultObjectAcl",
        "delete",
        "inventory",
        "lifecycle",
        "location",
        "logging",
        "metrics",
        "notification",
        "object-lock",
        "partNumber",
        "policy",
        "replication",
        "requestPayment",
        "response-cache-control",
        "response-content-disposition",
        "response-content-encoding",
        "response-content-language",
        "response-content-type",
        "response-expires",
        "restore",
        "select",
        "select-type",
        "storageClass",
        "tagging",
        "torrent",
        "uploadId",
        "uploads",
        "versionId",
        "versioning",
        "versions",
        "website",
    }
)
"""Query parameters that are part of the resource that SigV2 signs."""


def text(value: bytes | str) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def encode(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")


def header_map(headers: HeaderPairs) -> dict[str, list[str]]:
    """Lower-case name → values in the order in which they came."""
    found: dict[str, list[str]] = {}
    for name, value in headers:
        found.setdefault(text(name).lower(), []).append(text(value))
    return found


def query_pairs(query: str) -> list[tuple[str, str]]:
    """The parameters of a raw query string, still percent-encoded, in order."""
    pairs = []
    for part in query.split("&"):
        if part:
            name, _, value = part.partition("=")
            pairs.append((name, value))
    return pairs


def decode_parameter(value: str) -> str:
    return text(unquote_to_bytes(encode(value.replace("+", " "))))


def _recode(value: str) -> str:
    return quote_from_bytes(unquote_to_bytes(encode(value.replace("+", " "))), safe=_UNRESERVED)


def canonical_queries(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """The query as a client may have signed it: strictly re-encoded (the rule), and as it came (some libraries)."""
    strict = "&".join(f"{name}={value}" for name, value in sorted((_recode(n), _recode(v)) for n, v in pairs))
    plain = "&".join(f"{name}={value}" for name, value in sorted(pairs))
    return [strict] if strict == plain else [strict, plain]


def canonical_paths(raw_path: str, *, s3: bool) -> list[str]:
    """The path as a client may have signed it.

    S3 signs the path encoded once and never normalized; every other service removes dot segments and encodes again.
    """
    path = raw_path or "/"
    if s3:
        strict = quote_from_bytes(unquote_to_bytes(encode(path)), safe="/" + _UNRESERVED)
        return [path] if strict == path else [strict, path]
    return [quote(encode(remove_dot_segments(path)), safe="/" + _UNRESERVED)]


def remove_dot_segments(path: str) -> str:
    """RFC 3986 §5.2.4, and runs of slashes become one, as the SDKs do before they sign."""
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            if kept:
                kept.pop()
        elif segment and segment != ".":
            kept.append(segment)
    tail = "/" if kept and path.endswith("/") else ""
    return "/" + "/".join(kept) + tail


def canonical_headers(headers: Mapping[str, Sequence[str]], names: Iterable[str]) -> str:
    """`name:value` lines in the order of `names`; inner whitespace is collapsed, equal names are joined by commas."""
    return "".join(f"{name}:{','.join(' '.join(v.split()) for v in headers.get(name, ()))}\n" for name in names)


def v2_resources(raw_path: str, query: str) -> list[str]:
    """The resource as SigV2 signs it: the path and its sub-resources in the order of their names."""
    chosen = sorted((part.split("=", 1) for part in query.split("&") if part), key=lambda pair: pair[0])
    rendered = [
        "=".join([pair[0], *(decode_parameter(value) for value in pair[1:])])
        for pair in chosen
        if pair[0] in V2_SUBRESOURCES
    ]
    suffix = f"?{'&'.join(rendered)}" if rendered else ""
    return [path + suffix for path in canonical_paths(raw_path, s3=True)]
