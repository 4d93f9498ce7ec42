"""Log streams: made once per job and host, listed as CloudWatch lists them.

Invariants: making streams twice, or from two processes at once, gives one of each; a list that is complete has no
token (clients of the SageMaker SDK ask again for ever while there is one), and all streams of one job, prefix
`<job>/`, always come in one answer.
"""

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Select, and_, delete, func, or_, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from trainshed_service.logs.errors import InvalidToken
from trainshed_service.store.models import LogSource, LogStream

MAX_STREAMS = 50
_STREAM_NAME = re.compile(r"(?P<job>[^/]+)/(?P<host>algo-\d+)-\d+")


@dataclass(frozen=True)
class StreamInfo:
    """Times are epoch milliseconds; null while the stream is empty."""

    id: int
    job_name: str
    name: str
    host: str
    created_ms: int
    first_ms: int | None
    last_ms: int | None
    last_ingest_ms: int | None
    lines: int

    @classmethod
    def of(cls, row: LogStream) -> "StreamInfo":
        return cls(
            id=row.id,
            job_name=row.job_name,
            name=row.name,
            host=row.host,
            created_ms=int(row.created_at * 1000),
            first_ms=row.first_ms,
            last_ms=row.last_ms,
            last_ingest_ms=row.last_ingest_ms,
            lines=row.next_seq,
        )


@dataclass(frozen=True)
class SourceInfo:
    """How the shipping of one host's lines stands."""

    attempt_id: str
    source: str
    lines: int
    last_contact_ms: int


def ensure(session: Session, job_name: str, names: Sequence[str], created_at: float) -> None:
    """Make the streams that are not there yet. ValueError: a name that is not `<job_name>/algo-N-<number>`."""
    rows = []
    for name in names:
        match = _STREAM_NAME.fullmatch(name)
        if match is None or match["job"] != job_name:
            raise ValueError(f"{name!r} is not a stream name of job {job_name!r}: <job>/algo-N-<number> is wanted")
        rows.append(
            {"job_name": job_name, "name": name, "host": match["host"], "created_at": created_at, "next_seq": 0}
        )
    if not rows:
        return
    insert = postgresql.insert if _dialect(session) == "postgresql" else sqlite.insert
    session.execute(insert(LogStream).values(rows).on_conflict_do_nothing(index_elements=["name"]))


def remove(session: Session, job_name: str) -> None:
    """Delete the job's streams with their lines, and what is known of its sources."""
    session.execute(delete(LogStream).where(LogStream.job_name == job_name))
    session.execute(delete(LogSource).where(LogSource.job_name == job_name))


def of_job(session: Session, job_name: str) -> list[LogStream]:
    """In the order in which they were made."""
    return list(session.scalars(select(LogStream).where(LogStream.job_name == job_name).order_by(LogStream.id)))


def sources(session: Session, job_name: str) -> list[SourceInfo]:
    rows = session.scalars(select(LogSource).where(LogSource.job_name == job_name))
    return [SourceInfo(row.attempt_id, row.source, row.next_seq, row.last_contact_ms) for row in rows]


def has_prefix(session: Session, prefix: str) -> ColumnElement[bool]:
    """Stream names that start with `prefix`, letter case counting; by an index where the database allows it."""
    conditions: list[ColumnElement[bool]] = [func.substr(LogStream.name, 1, len(prefix)) == prefix]
    job, slash, _ = prefix.partition("/")
    if slash:
        conditions.append(LogStream.job_name == job)
    elif _dialect(session) == "sqlite":  # orders text by its bytes, so the prefix is a range
        conditions.append(LogStream.name >= prefix)
        conditions.append(LogStream.name < prefix + "\U0010ffff")
    return and_(*conditions)


def describe(
    session: Session,
    *,
    prefix: str | None = None,
    by_time: bool = False,
    descending: bool = False,
    limit: int | None = None,
    token: str | None = None,
) -> tuple[list[StreamInfo], str | None]:
    """One page of streams and the token of the next, null where nothing is left. InvalidToken."""
    query = select(LogStream)
    if prefix:
        query = query.where(has_prefix(session, prefix))
    wanted = limit or MAX_STREAMS
    if prefix and prefix.endswith("/"):
        rows = session.scalars(query.order_by(LogStream.name.desc() if descending else LogStream.name)).all()
        return [StreamInfo.of(row) for row in rows], None
    query = _after(query, token, by_time=by_time, descending=descending)
    rows = session.scalars(query.limit(wanted + 1)).all()
    page = [StreamInfo.of(row) for row in rows[:wanted]]
    following = _token(page[-1], by_time=by_time, descending=descending) if len(rows) > wanted else None
    return page, following


def _after(query: "Select[LogStream]", token: str | None, *, by_time: bool, descending: bool) -> "Select[LogStream]":
    """Ordered, and starting behind the row that the token names."""
    time = func.coalesce(LogStream.last_ms, 0)
    if by_time:
        query = query.order_by(time.desc(), LogStream.id.desc()) if descending else query.order_by(time, LogStream.id)
    else:
        query = query.order_by(LogStream.name.desc() if descending else LogStream.name)
    if token is None:
        return query
    order, last = _parse(token)
    if order != _order(by_time=by_time, descending=descending):
        raise InvalidToken("The specified nextToken is invalid: it belongs to another order of the list.")
    if by_time:
        ms, stream_id = last
        if descending:
            return query.where(or_(time < ms, and_(time == ms, LogStream.id < stream_id)))
        return query.where(or_(time > ms, and_(time == ms, LogStream.id > stream_id)))
    (name,) = last
    return query.where(LogStream.name < name if descending else LogStream.name > name)


def _order(*, by_time: bool, descending: bool) -> str:
    return ("t" if by_time else "n") + ("d" if descending else "a")


def _token(last: StreamInfo, *, by_time: bool, descending: bool) -> str:
    key = [last.last_ms or 0, last.id] if by_time else [last.name]
    text = json.dumps([_order(by_time=by_time, descending=descending), *key])
    return base64.urlsafe_b64encode(text.encode()).decode()


def _parse(token: str) -> tuple[str, tuple[int | str, ...]]:
    try:
        order, *key = json.loads(base64.urlsafe_b64decode(token.encode()))
    except (ValueError, TypeError) as error:
        raise InvalidToken("The specified nextToken is invalid.") from error
    kinds = {"t": [int, int], "n": [str]}.get(order[:1] if isinstance(order, str) else "")
    if kinds is None or [type(each) for each in key] != kinds:
        raise InvalidToken("The specified nextToken is invalid.")
    return order, tuple(key)


def _dialect(session: Session) -> str:
    return session.get_bind().dialect.name
