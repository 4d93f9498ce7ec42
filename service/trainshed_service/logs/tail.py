"""All hosts of a job as one log: for REST, its SSE follow and the dashboard.

Invariants: a cursor holds one position per stream of the job, in the order in which the streams were made, so a reader
that goes on from the cursor of any line gets every other line exactly once, also lines that arrive late with an early
time. Lines that are there together come ordered by time.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from trainshed_service.logs import streams
from trainshed_service.logs.chunks import Line
from trainshed_service.logs.errors import InvalidToken
from trainshed_service.logs.merge import Span, merged
from trainshed_service.logs.pages import EVENT_OVERHEAD_BYTES, MAX_PAGE_BYTES

_CURSOR = re.compile(r"([0-9a-f]{1,15})-([0-9a-f]{1,15}(?:\.[0-9a-f]{1,15})*)")


@dataclass(frozen=True)
class TailLine:
    """`cursor` goes on behind this line."""

    host: str
    stream: str
    line: Line
    cursor: str


@dataclass(frozen=True)
class TailPage:
    """`cursor` is null while the job has no stream; `at_end`: nothing more was stored when this was read."""

    lines: list[TailLine]
    cursor: str | None
    at_end: bool


def read_tail(
    session: Session, job_name: str, cursor: str | None, limit: int, hosts: Sequence[str] | None = None
) -> TailPage:
    """Up to `limit` lines behind `cursor` (null: from the first line), of `hosts` alone where given. InvalidToken."""
    all_streams = streams.of_job(session, job_name)
    if not all_streams:
        return TailPage([], None, True)
    positions = positions_of(cursor, all_streams[0].id, len(all_streams))
    shown = [stream for stream in all_streams if hosts is None or stream.host in hosts]
    index = {stream.id: place for place, stream in enumerate(all_streams)}
    by_id = {stream.id: stream for stream in all_streams}
    spans = [
        Span(stream.id, positions[index[stream.id]], stream.next_seq, stream.first_ms or 0)
        for stream in shown
        if positions[index[stream.id]] < stream.next_seq
    ]
    identity = f"{all_streams[0].id:x}-"
    parts = [f"{position:x}" for position in positions]
    lines: list[TailLine] = []
    size = 0
    for item in merged(session, spans):
        size += len(item.line.text.encode()) + EVENT_OVERHEAD_BYTES
        if lines and (len(lines) >= limit or size > MAX_PAGE_BYTES):
            return TailPage(lines, lines[-1].cursor, False)
        parts[index[item.stream_id]] = f"{item.position + 1:x}"
        stream = by_id[item.stream_id]
        lines.append(TailLine(stream.host, stream.name, item.line, identity + ".".join(parts)))
    return TailPage(lines, identity + ".".join(parts), True)


def cursor_of(first_stream_id: int, positions: Sequence[int]) -> str:
    """The cursor that goes on at these positions, one per stream of the job."""
    return f"{first_stream_id:x}-" + ".".join(f"{position:x}" for position in positions)


def positions_of(cursor: str | None, first_stream_id: int, count: int) -> list[int]:
    """One position per stream: where to go on. InvalidToken."""
    if cursor is None:
        return [0] * count
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise InvalidToken("the cursor is not one that this log gave out")
    positions = [int(each, 16) for each in match[2].split(".")]
    if int(match[1], 16) != first_stream_id or len(positions) > count:
        raise InvalidToken("the cursor belongs to another log: the job was deleted and made anew; start without one")
    return positions + [0] * (count - len(positions))
