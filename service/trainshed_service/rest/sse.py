"""Server-sent events: framing, keep-alive comments, and an end as soon as the client is gone.

Invariant: every event that a client may want to go on from carries its id, and an event is one write, so a client never
keeps the id of an event that it did not get whole.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi.responses import StreamingResponse

KEEP_ALIVE_SECONDS = 15.0
KEEP_ALIVE = ": keep-alive\n\n"


def event(kind: str, data: dict[str, Any], *, event_id: str | int | None = None) -> str:
    """One event; JSON holds no line break, so the data is one line."""
    head = "" if event_id is None else f"id: {event_id}\n"
    return f"{head}event: {kind}\ndata: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n"


def stream(events: AsyncIterator[str]) -> StreamingResponse:
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)
