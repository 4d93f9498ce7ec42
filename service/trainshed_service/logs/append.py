"""The one write path of log lines: a batch becomes stored lines, each exactly once and in order.

Invariants:

* `LogSource.next_seq` and the lines below it change in the same transaction, so a batch that is sent again, overlaps
  the last one or arrives after a crash adds exactly the lines that are missing. Lines beyond a gap are not stored.
* Positions in a stream are given out by arrival, whichever host wrote the line; the time of a line is never below that
  of the line before it, so order by time equals order by position.
* Only the newest chunk of a stream is ever rewritten, and only by lines being added to it.
"""

from collections.abc import Sequence

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from trainshed_service.logs import chunks
from trainshed_service.logs.errors import UnknownStream
from trainshed_service.store.models import LogChunk, LogSource, LogStream
from trainshed_worker.protocol import LogBatch, LogLine

_MAX_AHEAD_MS = 2 * 3600 * 1000
"""A line whose time is further in the future than this has a broken clock behind it and gets the time of arrival."""


def append_batch(session: Session, batch: LogBatch, now_ms: int, stream_epoch: int | None = None) -> int:
    """Store what is new in `batch`; return the first number not yet stored. UnknownStream: nothing was stored.

    `stream_epoch` ends the names of the attempt's streams, so that a late line of an old attempt finds its own stream;
    without it a host's newest stream is taken.
    """
    key = (LogSource.attempt_id == batch.attempt_id, LogSource.source == batch.source)
    stored = session.execute(select(LogSource.next_seq).where(*key).with_for_update()).scalar_one_or_none()
    next_seq = stored or 0
    fresh = _contiguous(batch.lines, next_seq)
    by_stream: dict[str, list[LogLine]] = {}
    for line in fresh:
        by_stream.setdefault(line.stream, []).append(line)
    for stream in sorted(by_stream):
        _add(session, _find_stream(session, batch.job_name, stream, stream_epoch), by_stream[stream], now_ms)
    next_seq += len(fresh)
    if stored is None:
        session.execute(
            insert(LogSource).values(
                attempt_id=batch.attempt_id,
                source=batch.source,
                job_name=batch.job_name,
                next_seq=next_seq,
                last_contact_ms=now_ms,
            )
        )
    else:
        session.execute(update(LogSource).where(*key).values(next_seq=next_seq, last_contact_ms=now_ms))
    return next_seq


def _contiguous(lines: Sequence[LogLine], next_seq: int) -> list[LogLine]:
    """The lines numbered `next_seq`, `next_seq + 1`, … up to the first gap, each once."""
    fresh: list[LogLine] = []
    for line in sorted(lines, key=lambda each: each.seq):
        wanted = next_seq + len(fresh)
        if line.seq == wanted:
            fresh.append(line)
        elif line.seq > wanted:
            break
    return fresh


def _find_stream(session: Session, job_name: str, host: str, stream_epoch: int | None) -> LogStream:
    query = select(LogStream).where(LogStream.job_name == job_name)
    name = f"{job_name}/{host}-{stream_epoch or '…'}"
    query = query.where(LogStream.name == name if stream_epoch else LogStream.host == host)
    row = session.execute(query.order_by(LogStream.id.desc()).limit(1).with_for_update()).scalar_one_or_none()
    if row is None:
        raise UnknownStream(name)
    return row


def _add(session: Session, stream: LogStream, lines: list[LogLine], now_ms: int) -> None:
    last_ms = stream.last_ms or 0
    writer = _ChunkWriter(session, stream, now_ms)
    for line in lines:
        given = line.timestamp_ms if line.timestamp_ms <= now_ms + _MAX_AHEAD_MS else now_ms
        last_ms = max(last_ms, given)
        writer.add(last_ms, line.text)
        if stream.first_ms is None:
            stream.first_ms = last_ms
    writer.flush()
    stream.next_seq += len(lines)
    stream.last_ms = last_ms
    stream.last_ingest_ms = now_ms
    session.flush()


class _ChunkWriter:
    """Fills the stream's newest chunk, then new ones."""

    def __init__(self, session: Session, stream: LogStream, now_ms: int) -> None:
        self._session = session
        self._stream_id = stream.id
        self._now_ms = now_ms
        self._start(stream.next_seq)
        newest = session.execute(
            select(LogChunk.first_seq, LogChunk.last_seq, LogChunk.first_ms, LogChunk.data)
            .where(LogChunk.stream_id == stream.id)
            .order_by(LogChunk.first_seq.desc())
            .limit(1)
        ).first()
        if newest is None:
            return
        count = newest.last_seq - newest.first_seq + 1
        if count < chunks.MAX_LINES and chunks.raw_size(newest.data) < chunks.MAX_BYTES:
            self._first = newest.first_seq
            self._count = count
            self._first_ms = newest.first_ms
            self._raw = bytearray(chunks.unpack(newest.data))
            self._is_stored = True

    def _start(self, position: int) -> None:
        self._first = position
        self._count = 0
        self._first_ms = 0
        self._last_ms = 0
        self._raw = bytearray()
        self._is_stored = False
        self._changed = False

    def add(self, ms: int, text: str) -> None:
        encoded = chunks.encode_line(ms, self._now_ms, chunks.fit_text(text))
        full = self._count >= chunks.MAX_LINES or len(self._raw) + len(encoded) > chunks.MAX_BYTES
        if self._count and full:
            self.flush()
            self._start(self._first + self._count)
        if not self._count:
            self._first_ms = ms
        self._raw += encoded
        self._count += 1
        self._last_ms = ms
        self._changed = True

    def flush(self) -> None:
        if not self._changed:
            return
        values = {
            "last_seq": self._first + self._count - 1,
            "last_ms": self._last_ms,
            "ingested_ms": self._now_ms,
            "data": chunks.pack(self._raw),
        }
        if self._is_stored:
            self._session.execute(
                update(LogChunk)
                .where(LogChunk.stream_id == self._stream_id, LogChunk.first_seq == self._first)
                .values(**values)
                .execution_options(synchronize_session=False)
            )
        else:
            self._session.execute(
                insert(LogChunk).values(
                    stream_id=self._stream_id, first_seq=self._first, first_ms=self._first_ms, **values
                )
            )
