"""One line of JSON per request on a stream, written in batches: a write of its own per request would cost more than
the check of its signature.

Invariant: lines are out at most `FLUSH_SECONDS` after their request, and all of them after `close`. A process that is
killed may lose the lines of that time; nothing but reading by people depends on them.
"""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime
from typing import TextIO

import structlog

FLUSH_SECONDS = 0.2
_MAX_LINES = 1000

log = structlog.get_logger(__name__)

Field = str | int | float | None


class AccessLog:
    """Make it inside the event loop."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._lines: list[dict[str, Field]] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, fields: dict[str, Field]) -> None:
        """`fields` is kept; it gets the time of day under `at` (epoch seconds)."""
        fields["at"] = time.time()
        self._lines.append(fields)
        if len(self._lines) >= _MAX_LINES:
            self.flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(FLUSH_SECONDS, self.flush)

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        lines, self._lines = self._lines, []
        if not lines:
            return
        text = "".join([_line(fields) for fields in lines])
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError as error:  # a full disk must not end the gateway
            log.warning("the access log cannot be written", reason=str(error), lost=len(lines))


def _line(fields: dict[str, Field]) -> str:
    at = fields.pop("at")
    assert isinstance(at, float)
    fields["event"] = "s3"
    fields["level"] = "info"
    fields["timestamp"] = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps(fields) + "\n"
