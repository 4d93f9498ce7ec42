"""Access keys that were looked up a moment ago, so that not every request asks the database.

A key that was revoked works for at most `ttl` seconds more, counted from before its look-up began. Unknown keys are
remembered for a shorter time, so that a flood of them reaches the database rarely and a new key works at once.
"""

from __future__ import annotations

from trainshed_service.clock import Clock
from trainshed_service.identity.principal import KeyRecord

_LIMIT = 10_000


class KeyCache:
    def __init__(self, clock: Clock, *, ttl: float = 1.0, unknown_ttl: float = 0.5) -> None:
        self._clock = clock
        self._ttl = ttl
        self._unknown_ttl = unknown_ttl
        self._entries: dict[str, tuple[float, KeyRecord | None]] = {}

    def get(self, access_key_id: str) -> tuple[bool, KeyRecord | None]:
        """(known here, record)."""
        entry = self._entries.get(access_key_id)
        if entry is None or entry[0] <= self._clock.now():
            return False, None
        return True, entry[1]

    def put(self, access_key_id: str, record: KeyRecord | None, *, asked_at: float) -> None:
        """`asked_at`: epoch seconds at which the look-up began."""
        if len(self._entries) >= _LIMIT:
            self._entries.clear()
        ttl = self._ttl if record is not None else self._unknown_ttl
        self._entries[access_key_id] = (asked_at + ttl, record)

    def forget(self, access_key_id: str | None = None) -> None:
        if access_key_id is None:
            self._entries.clear()
        else:
            self._entries.pop(access_key_id, None)
