"""FilterLogEvents: lines of many streams in one order of time, filtered, page by page.

Invariants: a token is the place of the last line looked at in the total order (time, stream, position), so going on
from it neither repeats nor skips a line; a page ends after `MAX_SCAN_BYTES` of lines looked at even if few matched, so
one call's work is bounded. The id of an event is that place, 56 digits that sort like it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainshed_service.logs import reading
from trainshed_service.logs.chunks import Line
from trainshed_service.logs.errors import InvalidToken, UnknownStream
from trainshed_service.logs.merge import Merged, Span, merged
from trainshed_service.logs.pages import EVENT_OVERHEAD_BYTES, MAX_EVENTS, MAX_PAGE_BYTES
from trainshed_service.logs.pattern import Matches
from trainshed_service.logs.streams import has_prefix
from trainshed_service.store.models import LogStream

MAX_SCAN_BYTES = 16 * 1024 * 1024
_PLACE = re.compile(r"([0-9]{20})([0-9]{16})([0-9]{20})")


@dataclass(frozen=True)
class FoundLine:
    stream: str
    event_id: str
    line: Line


@dataclass(frozen=True)
class FoundPage:
    """`token` is null when all has been looked at."""

    lines: list[FoundLine]
    token: str | None


def filter_lines(
    session: Session,
    *,
    matches: Matches | None = None,
    names: Sequence[str] | None = None,
    prefix: str | None = None,
    start_ms: int | None = None,
    end_ms: int | None = None,
    token: str | None = None,
    limit: int | None = None,
) -> FoundPage:
    """`start_ms` is included, `end_ms` is not. UnknownStream for one of `names`; InvalidToken."""
    after = _parse(token) if token is not None else None
    lowest = max(start_ms or 0, after[0] if after else 0)
    query = select(LogStream).where(LogStream.last_ms >= lowest)
    if end_ms is not None:
        query = query.where(LogStream.first_ms < end_ms)
    if prefix:
        query = query.where(has_prefix(session, prefix))
    if names is not None:
        _check_names(session, names)
        query = query.where(LogStream.name.in_(names))
    streams = {stream.id: stream for stream in session.scalars(query)}
    spans = [_span(session, stream, lowest, after) for stream in streams.values()]
    found: list[FoundLine] = []
    scanned = size = 0
    last: Merged | None = None
    for item in merged(session, spans):
        if end_ms is not None and item.ms >= end_ms:
            break
        length = len(item.line.text.encode()) + EVENT_OVERHEAD_BYTES
        is_match = matches is None or matches(item.line.text)
        full = len(found) >= (limit or MAX_EVENTS) or (is_match and found and size + length > MAX_PAGE_BYTES)
        if last is not None and (full or scanned > MAX_SCAN_BYTES):
            return FoundPage(found, _place(last))
        if is_match:
            found.append(FoundLine(streams[item.stream_id].name, _place(item), item.line))
            size += length
        scanned += length
        last = item
    return FoundPage(found, None)


def _check_names(session: Session, names: Sequence[str]) -> None:
    known = session.scalars(select(LogStream.name).where(LogStream.name.in_(names)))
    missing = sorted(set(names) - set(known))
    if missing:
        raise UnknownStream(missing[0])


def _span(session: Session, stream: LogStream, lowest: int, after: tuple[int, int, int] | None) -> Span:
    """The part of the stream at `lowest` or later that lies behind the place `after` in the order of all lines."""
    first_ms = stream.first_ms or 0
    start = 0
    if first_ms < lowest:
        start = reading.position_at(session, stream, lowest)
    if after is not None and (first_ms <= after[0]):
        if stream.id == after[1]:
            start = max(start, after[2] + 1)
        elif stream.id < after[1]:
            start = max(start, reading.position_at(session, stream, after[0] + 1))
    return Span(stream.id, start, stream.next_seq, max(first_ms, lowest))


def _place(item: Merged) -> str:
    return f"{item.ms:020d}{item.stream_id:016d}{item.position:020d}"


def _parse(token: str) -> tuple[int, int, int]:
    match = _PLACE.fullmatch(token)
    if match is None:
        raise InvalidToken("The specified nextToken is invalid.")
    return int(match[1]), int(match[2]), int(match[3])
