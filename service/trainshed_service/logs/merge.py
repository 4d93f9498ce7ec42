"""Several streams as one, ordered by time.

Invariants: the order is total (time, stream, position), so a place in it can be named and returned to; a stream whose
first line is later than what is wanted is never opened, so a page over thousands of streams costs what it shows.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy.orm import Session

from trainshed_service.logs import reading
from trainshed_service.logs.chunks import Line


@dataclass(frozen=True)
class Span:
    """Lines `start` ≤ position < `end` of a stream, none of which is earlier than `not_before_ms`."""

    stream_id: int
    start: int
    end: int
    not_before_ms: int


class Merged(NamedTuple):
    """Sorts by time, then stream, then position."""

    ms: int
    stream_id: int
    position: int
    line: Line


def merged(session: Session, spans: Sequence[Span]) -> Iterator[Merged]:
    """All lines of the spans in order. A span's stream is read from the moment on that its first line may be next."""
    waiting = sorted(spans, key=lambda span: (span.not_before_ms, span.stream_id), reverse=True)
    heap: list[tuple[Merged, Iterator[Line]]] = []
    while waiting or heap:
        while waiting and (not heap or waiting[-1].not_before_ms <= heap[0][0].ms):
            span = waiting.pop()
            _push(heap, span.stream_id, reading.forward(session, span.stream_id, span.start, span.end))
        if not heap:
            continue
        item, lines = heapq.heappop(heap)
        yield item
        _push(heap, item.stream_id, lines)


def _push(heap: list[tuple[Merged, Iterator[Line]]], stream_id: int, lines: Iterator[Line]) -> None:
    line = next(lines, None)
    if line is not None:
        heapq.heappush(heap, (Merged(line.ms, stream_id, line.position, line), lines))
