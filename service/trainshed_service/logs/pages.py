"""Pages of one stream, forward and backward, as CloudWatch's GetLogEvents gives them.

Invariants: a token names a direction and a position, nothing else, so it stays good while lines are added and the tail
goes on from it; both tokens are always given; where a direction has no more lines the token that came in goes out
again.
"""

import re
from dataclasses import dataclass
from itertools import islice

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainshed_service.logs import reading
from trainshed_service.logs.chunks import Line
from trainshed_service.logs.errors import InvalidToken, UnknownStream
from trainshed_service.store.models import LogStream

MAX_EVENTS = 10_000
MAX_PAGE_BYTES = 1024 * 1024
EVENT_OVERHEAD_BYTES = 26
"""CloudWatch counts each event with so many bytes on top of its text."""

_TOKEN = re.compile(r"([fb])/([0-9]{20})([0-9]{36})/s")


@dataclass(frozen=True)
class Page:
    lines: list[Line]
    forward_token: str
    backward_token: str


def get_page(
    session: Session,
    stream_name: str,
    *,
    start_ms: int | None = None,
    end_ms: int | None = None,
    token: str | None = None,
    limit: int | None = None,
    from_head: bool = False,
) -> Page:
    """`start_ms` is included, `end_ms` is not. UnknownStream, InvalidToken."""
    stream = session.execute(select(LogStream).where(LogStream.name == stream_name)).scalar_one_or_none()
    if stream is None:
        raise UnknownStream(stream_name)
    low = 0 if start_ms is None else reading.position_at(session, stream, start_ms)
    high = stream.next_seq if end_ms is None else reading.position_at(session, stream, end_ms)
    if token is not None:
        from_head, position = _parse(token, stream.id)
        if from_head:
            low = max(low, position)
        else:
            high = min(high, position)
    source = reading.forward if from_head else reading.backward
    lines = _fill(islice(source(session, stream.id, low, high), limit or MAX_EVENTS))
    if not from_head:
        lines.reverse()
    if lines:
        first, after = lines[0].position, lines[-1].position + 1
    elif from_head:
        first = after = low
    else:
        first = after = high
    return Page(lines, _token("f", stream.id, after), _token("b", stream.id, first))


def _fill(lines: "islice[Line]") -> list[Line]:
    """As many as fit in a page, one at least."""
    taken: list[Line] = []
    size = 0
    for line in lines:
        size += len(line.text.encode()) + EVENT_OVERHEAD_BYTES
        if taken and size > MAX_PAGE_BYTES:
            break
        taken.append(line)
    return taken


def _token(direction: str, stream_id: int, position: int) -> str:
    return f"{direction}/{stream_id:020d}{position:036d}/s"


def _parse(token: str, stream_id: int) -> tuple[bool, int]:
    match = _TOKEN.fullmatch(token)
    if match is None or int(match[2]) != stream_id:
        raise InvalidToken("The specified nextToken is invalid.")
    return match[1] == "f", int(match[3])
