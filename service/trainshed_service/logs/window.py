"""Lines of a job by their place in a range of its log, however long that is: what a page that scrolls asks for.

Invariants: a range is what lies between two cursors, so its lines and their order (time, stream, position) never
change, whatever is written meanwhile; a place in it is found by bisecting over time, with some chunks read per stream,
never by counting lines from the start.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainshed_service.logs import chunks, streams
from trainshed_service.logs.merge import Merged, Span, merged
from trainshed_service.logs.tail import cursor_of, positions_of
from trainshed_service.store.models import LogChunk, LogStream

MAX_LINES = 2_000
_AT = re.compile(r"(algo-\d+-\d+):(\d{1,12})")


@dataclass(frozen=True)
class Range:
    """`start` null: from the first line; `end` null: to the last one now. `hosts` null: of all."""

    start: str | None = None
    end: str | None = None
    hosts: Sequence[str] | None = None


@dataclass(frozen=True)
class WindowLine:
    """`index` counts from 0 in the range."""

    index: int
    host: str
    stream: str
    position: int
    ms: int
    text: str


@dataclass(frozen=True)
class Window:
    """`end` is the cursor behind the range (null while the job has no stream); `counts` are lines of each host."""

    lines: list[WindowLine]
    end: str | None
    counts: dict[str, int]
    at: int | None


@dataclass(frozen=True)
class Part:
    """Positions `start` ≤ p < `end` of a stream."""

    stream: LogStream
    start: int
    end: int


def read_window(session: Session, job_name: str, within: Range, offset: int, limit: int, at: str | None) -> Window:
    """InvalidToken. An `at` that is not in the range gives null; one that is stands in the middle."""
    every = streams.of_job(session, job_name)
    if not every:
        return Window([], None, {}, None)
    parts, end = parts_of(every, within)
    counts: dict[str, int] = {}
    for part in parts:
        counts[part.stream.host] = counts.get(part.stream.host, 0) + part.end - part.start
    places = Places(session, parts)
    index = places.of(at) if at else None
    if index is not None:
        offset = max(0, index - limit // 2)
    by_id = {part.stream.id: part.stream for part in parts}
    lines = [
        WindowLine(
            number,
            by_id[item.stream_id].host,
            by_id[item.stream_id].name,
            item.position,
            item.line.ms,
            item.line.text,
        )
        for number, item in enumerate(islice(places.forward(offset), min(limit, MAX_LINES)), offset)
    ]
    return Window(lines, end, counts, index)


def parts_of(every: Sequence[LogStream], within: Range) -> tuple[list[Part], str]:
    """What of each stream is in the range (of its hosts), and the cursor behind the range. InvalidToken."""
    first = every[0].id
    starts = positions_of(within.start, first, len(every))
    now = [stream.next_seq for stream in every]
    ends = now if within.end is None else positions_of(within.end, first, len(every))
    ends = [max(start, min(end, most)) for start, end, most in zip(starts, ends, now, strict=True)]
    parts = [
        Part(stream, start, end)
        for stream, start, end in zip(every, starts, ends, strict=True)
        if start < end and (within.hosts is None or stream.host in within.hosts)
    ]
    return parts, cursor_of(first, ends)


class Places:
    """Places in the merged order of some parts. Times of chunks are kept: a bisection comes back to them."""

    def __init__(self, session: Session, parts: Sequence[Part]) -> None:
        self._session = session
        self._parts = parts
        self._times: dict[tuple[int, int], list[int]] = {}
        self.total = sum(part.end - part.start for part in parts)

    def forward(self, offset: int) -> Iterator[Merged]:
        """The lines from place `offset` on."""
        if offset >= self.total:
            return iter(())
        if len(self._parts) == 1:
            part = self._parts[0]
            span = Span(part.stream.id, part.start + offset, part.end, 0)
            return merged(self._session, [span])
        low = min(part.stream.first_ms or 0 for part in self._parts)
        high = max(part.stream.last_ms or 0 for part in self._parts) + 1
        while high - low > 1:  # the latest time before which there are at most `offset` lines
            middle = (low + high) // 2
            if sum(self._before(part, middle) for part in self._parts) <= offset:
                low = middle
            else:
                high = middle
        before = [self._before(part, low) for part in self._parts]
        spans = [
            Span(part.stream.id, part.start + count, part.end, low)
            for part, count in zip(self._parts, before, strict=True)
            if part.start + count < part.end
        ]
        return islice(merged(self._session, spans), offset - sum(before), None)

    def of(self, at: str) -> int | None:
        """The place of line `algo-N-<number>:<line>` (lines count from 1)."""
        match = _AT.fullmatch(at)
        wanted = int(match[2]) - 1 if match else -1
        own = next((p for p in self._parts if match and p.stream.name.rpartition("/")[2] == match[1]), None)
        if own is None or not own.start <= wanted < own.end:
            return None
        if len(self._parts) == 1:
            return wanted - own.start
        ms = next(merged(self._session, [Span(own.stream.id, wanted, wanted + 1, 0)])).ms
        others = (part for part in self._parts if part is not own)
        earlier = sum(self._before(part, ms + (part.stream.id < own.stream.id)) for part in others)
        return earlier + wanted - own.start

    def _before(self, part: Part, ms: int) -> int:
        """How many lines of the part are earlier than `ms`."""
        row = self._session.execute(
            select(LogChunk.first_seq)
            .where(LogChunk.stream_id == part.stream.id, LogChunk.last_ms >= ms)
            .order_by(LogChunk.last_ms, LogChunk.first_seq)
            .limit(1)
        ).first()
        if row is None:
            return part.end - part.start
        position = int(row.first_seq) + bisect_left(self._of_chunk(part.stream.id, row.first_seq), ms)
        return max(0, min(position, part.end) - part.start)

    def _of_chunk(self, stream_id: int, first_seq: int) -> list[int]:
        key = (stream_id, first_seq)
        if key not in self._times:
            data = self._session.execute(
                select(LogChunk.data).where(LogChunk.stream_id == stream_id, LogChunk.first_seq == first_seq)
            ).scalar_one()
            self._times[key] = [line.ms for line in chunks.decode(data, first_seq)]
        return self._times[key]
