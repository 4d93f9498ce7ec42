"""Which bucket and key a request is about, and the path that is sent to the store for it.

Invariant: the gateway authorizes and the store acts on the same name. So the path is taken as it came over the wire and
decoded once; names that the store would read differently (dot segments, a leading empty segment, bytes that are not
UTF-8) are refused here; and the store gets the strict encoding of exactly the name that was authorized.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes

from trainshed_service.wire.canonical import decode_parameter, query_pairs
from trainshed_service.wire.errors import ApiError

_SAFE = "-_.~"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.\-_]{1,62}\Z")
_MAX_KEY_BYTES = 1024
_POSITIONS = ("prefix", "marker", "start-after", "continuation-token", "key-marker")


@dataclass(frozen=True, slots=True)
class Target:
    """`bucket` empty: the service itself. `key` empty: the bucket itself."""

    bucket: str
    key: str

    @property
    def store_path(self) -> str:
        if not self.bucket:
            return "/"
        path = f"/{self.bucket}"
        return f"{path}/{quote(self.key, safe='/' + _SAFE)}" if self.key else path


def invalid(message: str) -> ApiError:
    return ApiError("InvalidURI", message, 400)


def parse_target(raw_path: str, host: str, base_hosts: Collection[str]) -> Target:
    """Path style, or virtual-host style where `host` is `<bucket>.<one of base_hosts>`.

    Raises ApiError(InvalidURI, InvalidBucketName, KeyTooLongError).
    """
    bucket = bucket_of_host(host, base_hosts)
    if not raw_path.startswith("/"):
        raise invalid("The request's path must begin with a slash.")
    if bucket is None:
        bucket, _, raw_key = raw_path[1:].partition("/")
        bucket = _decode(bucket)
        if not bucket and raw_key:
            raise invalid("The path has no bucket name.")
    else:
        raw_key = raw_path[1:]
    if bucket and not _BUCKET.match(bucket):
        raise ApiError("InvalidBucketName", "The specified bucket is not valid.", 400)
    return Target(bucket, checked_key(_decode(raw_key)))


def parse_copy_source(header: str) -> Target:
    """The source in `x-amz-copy-source`: `[/]bucket/key[?versionId=…]`, percent-encoded."""
    name = header.split("?versionId=", 1)[0]
    decoded = _decode(name).removeprefix("/")
    bucket, separator, key = decoded.partition("/")
    if not separator or not key or not _BUCKET.match(bucket):
        raise ApiError("InvalidArgument", "Copy Source must mention the source bucket and key: sourcebucket/key", 400)
    return Target(bucket, checked_key(key))


def checked_key(key: str) -> str:
    """The key itself, where the store can hold it under this very name."""
    if len(key.encode()) > _MAX_KEY_BYTES:
        raise ApiError("KeyTooLongError", "Your key is too long", 400)
    if "\0" in key or _has_dot_segment(key):
        raise invalid("The store cannot hold keys with a segment '.' or '..', or with a NUL.")
    return key


def stored_key(key: str) -> str:
    """The name under which the embedded store keeps `key`: a backslash becomes a slash, runs of slashes become one,
    a leading one goes.
    """
    return re.sub(r"[/\\]+", "/", key).removeprefix("/")


def _has_dot_segment(name: str) -> bool:
    """A backslash separates too: the store reads it as a slash."""
    return "." in name and any(segment in (".", "..") for segment in name.replace("\\", "/").split("/"))


def bucket_of_host(host: str, base_hosts: Collection[str]) -> str | None:
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    for base in base_hosts:
        if name.endswith("." + base):
            return name.removesuffix("." + base)
    return None


def query_parameters(raw_query: str) -> dict[str, str]:
    """Decoded parameters; a name that comes twice is refused, since two readers could choose different ones."""
    found: dict[str, str] = {}
    for name, value in query_pairs(raw_query):
        decoded = decode_parameter(name)
        if decoded in found:
            raise ApiError("InvalidArgument", f"The query parameter '{decoded[:64]}' is given twice.", 400)
        found[decoded] = decode_parameter(value)
    for name in _POSITIONS:
        if _has_dot_segment(found.get(name, "")):
            raise invalid(f"The store cannot list by a '{name}' with a segment '.' or '..'.")
    return found


def _decode(raw: str) -> str:
    try:
        return unquote_to_bytes(raw.encode("utf-8", "surrogateescape")).decode("utf-8")
    except UnicodeDecodeError:
        raise invalid("The key is not UTF-8.") from None
