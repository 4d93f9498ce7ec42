"""Page tokens: opaque to clients, bound to the query that they continue, and of no use when tampered with.

A token holds a keyset cursor (the sort values and id of the last row that was given out), not an offset, so that rows
which are added or removed meanwhile shift nothing. It is authenticated with a key of the installation and holds a hash
of the query's other members, so that it continues that query only. It never expires: a cursor is valid for ever.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from typing import Any

from trainshed_service.wire.errors import ApiError, validation_error

_MAC_BYTES = 16
_QUERY_BYTES = 8
_IGNORED = frozenset({"NextToken", "nextToken", "MaxResults", "limit", "maxResults"})
"""Members that may differ from page to page."""

Cursor = Sequence[str | int | float | bool | None]


class PageTokens:
    def __init__(self, key: bytes) -> None:
        self._key = key

    def issue(self, kind: str, query: Mapping[str, Any], cursor: Cursor) -> str:
        """A token that continues `query` (an operation's request) of operation `kind` after `cursor`."""
        payload = _query_hash(kind, query) + json.dumps(list(cursor), separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(self._mac(payload) + payload).decode().rstrip("=")

    def read(self, kind: str, query: Mapping[str, Any], token: str) -> list[Any]:
        """The cursor in `token`. Raises ValidationException where it was not issued for this very query."""
        try:
            raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise _invalid() from None
        mac, payload = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(payload)):
            raise _invalid()
        if not hmac.compare_digest(payload[:_QUERY_BYTES], _query_hash(kind, query)):
            raise validation_error(
                "Invalid NextToken: it belongs to another query. Repeat all other parameters as in the first call."
            )
        cursor = json.loads(payload[_QUERY_BYTES:])
        assert isinstance(cursor, list)  # authenticated: we wrote it
        return cursor

    def _mac(self, payload: bytes) -> bytes:
        return hmac.digest(self._key, payload, hashlib.sha256)[:_MAC_BYTES]


def _query_hash(kind: str, query: Mapping[str, Any]) -> bytes:
    kept = {name: value for name, value in query.items() if name not in _IGNORED and value is not None}
    text = json.dumps([kind, kept], sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:_QUERY_BYTES]


def _invalid() -> ApiError:
    return validation_error("Invalid NextToken: the token was not issued by this service.")
