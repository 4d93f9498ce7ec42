"""Reading lines by position. Everything that asks by time is turned into positions first, which order equally.

Invariant: a reader bounded by the `end` it took at its start (the stream's `next_seq`) sees each position below it
exactly once, however much is appended meanwhile, because a chunk is only ever rewritten to add lines at its end.
"""

from bisect import bisect_left
from collections.abc import Iterator

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from trainshed_service.logs import chunks
from trainshed_service.logs.chunks import Line
from trainshed_service.store.models import LogChunk, LogStream

_CHUNKS_PER_READ = 8


def forward(session: Session, stream_id: int, start: int, end: int) -> Iterator[Line]:
    """Lines of positions `start` ≤ p < `end`, ascending; chunks are loaded as they are needed."""
    if start >= end:
        return
    first = session.execute(
        select(func.max(LogChunk.first_seq)).where(LogChunk.stream_id == stream_id, LogChunk.first_seq <= start)
    ).scalar_one_or_none()
    first = first or 0
    amount = 1
    while first < end:
        rows = session.execute(
            select(LogChunk.first_seq, LogChunk.last_seq, LogChunk.data)
            .where(LogChunk.stream_id == stream_id, LogChunk.first_seq >= first, LogChunk.first_seq < end)
            .order_by(LogChunk.first_seq)
            .limit(amount)
        ).all()
        if not rows:
            return
        for row in rows:
            for line in chunks.decode(row.data, row.first_seq):
                if line.position >= end:
                    return
                if line.position >= start:
                    yield line
        first = rows[-1].last_seq + 1
        amount = _CHUNKS_PER_READ


def backward(session: Session, stream_id: int, start: int, end: int) -> Iterator[Line]:
    """Lines of positions `start` ≤ p < `end`, descending."""
    below = end
    while below > start:
        row = session.execute(
            select(LogChunk.first_seq, LogChunk.data)
            .where(LogChunk.stream_id == stream_id, LogChunk.first_seq < below)
            .order_by(LogChunk.first_seq.desc())
            .limit(1)
        ).first()
        if row is None:
            return
        for line in reversed(chunks.decode(row.data, row.first_seq)):
            if line.position < start:
                return
            if line.position < below:
                yield line
        below = row.first_seq


def position_at(session: Session, stream: LogStream, ms: int) -> int:
    """The first position whose time is `ms` or later; the stream's end where there is none."""
    row = session.execute(
        select(LogChunk.first_seq, LogChunk.data)
        .where(LogChunk.stream_id == stream.id, LogChunk.last_ms >= ms)
        .order_by(LogChunk.last_ms, LogChunk.first_seq)
        .limit(1)
    ).first()
    if row is None:
        return stream.next_seq
    lines = chunks.decode(row.data, row.first_seq)
    first: int = row.first_seq
    return min(first + bisect_left(lines, ms, key=lambda line: line.ms), stream.next_seq)
