"""`MetricStore`: metric points in the logs database.

Invariants: a point is stored exactly once, whatever is sent again, since its key is made of the attempt, the source and
the log line that it was read from; within one millisecond points keep the order of their lines; only finite numbers are
kept (`loss=nan` is a line, not a value).
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, delete, func, select, tuple_
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from trainshed_service.metrics.statistics import Bucket, buckets_of
from trainshed_service.store import Database
from trainshed_service.store.models import MetricSample
from trainshed_worker.protocol import MetricBatch

_ROWS_PER_INSERT = 500
_SOURCE_BITS = 20


@dataclass(frozen=True, order=True)
class MetricKey:
    """`host` is null for the job's own metrics, algo-N for utilisation of a host."""

    job_name: str
    name: str
    host: str | None


@dataclass(frozen=True)
class FinalMetric:
    """The last value of one metric of a job; `at` is epoch seconds."""

    name: str
    value: float
    at: float


class MetricStore:
    """Times are epoch milliseconds unless they say otherwise."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, batch: MetricBatch) -> None:
        rows = _rows(batch)
        if rows:
            await self._database.write(lambda session: _insert(session, rows))

    async def statistics(
        self,
        job_name: str,
        name: str,
        *,
        host: str | None = None,
        start_ms: int,
        end_ms: int,
        period_ms: int,
        percentiles: Sequence[str] = (),
    ) -> list[Bucket]:
        """Buckets of `start_ms` ≤ time < `end_ms`, oldest first, none empty. `percentiles`: p0 … p100."""

        def read(session: Session) -> list[Bucket]:
            rows = session.execute(
                select(MetricSample.at_ms, MetricSample.value)
                .where(*_of(job_name, name, host), MetricSample.at_ms >= start_ms, MetricSample.at_ms < end_ms)
                .order_by(MetricSample.at_ms)
            )
            return buckets_of(((row.at_ms, row.value) for row in rows), start_ms, period_ms, percentiles)

        return await self._database.read(read)

    async def points(
        self, job_name: str, name: str, *, host: str | None = None, after_ms: int = -1, limit: int = 10_000
    ) -> list[tuple[int, float]]:
        """(time, value) in the order in which they were written; those later than `after_ms`."""

        def read(session: Session) -> list[tuple[int, float]]:
            rows = session.execute(
                select(MetricSample.at_ms, MetricSample.value)
                .where(*_of(job_name, name, host), MetricSample.at_ms > after_ms)
                .order_by(MetricSample.at_ms, MetricSample.point)
                .limit(limit)
            )
            return [(row.at_ms, row.value) for row in rows]

        return await self._database.read(read)

    async def final(self, job_name: str) -> list[FinalMetric]:
        """The last value of each of the job's own metrics, by name (FinalMetricDataList)."""

        def read(session: Session) -> list[FinalMetric]:
            own = and_(MetricSample.job_name == job_name, MetricSample.host == "")
            names = session.scalars(select(MetricSample.name).where(own).distinct().order_by(MetricSample.name)).all()
            finals = []
            for name in names:
                last = session.execute(
                    select(MetricSample.value, MetricSample.at_ms)
                    .where(own, MetricSample.name == name)
                    .order_by(MetricSample.at_ms.desc(), MetricSample.point.desc())
                    .limit(1)
                ).one()
                finals.append(FinalMetric(name, last.value, last.at_ms / 1000))
            return finals

        return await self._database.read(read)

    async def delete_job(self, job_name: str) -> None:
        await self._database.write(
            lambda session: session.execute(delete(MetricSample).where(MetricSample.job_name == job_name))
        )

    async def list(
        self,
        *,
        job_name: str | None = None,
        name: str | None = None,
        host: str | None = None,
        of_hosts: bool = False,
        after: MetricKey | None = None,
        since_ms: int | None = None,
        limit: int = 500,
    ) -> list[MetricKey]:
        """Metrics that exist, ordered, behind `after`.

        `host`: '' for the jobs' own metrics, algo-N for that host; `of_hosts`: only samples of hosts; `since_ms`: only
        those with a point then or later.
        """

        def wanted(session: Session, key: MetricKey) -> bool:
            return (
                (name is None or key.name == name)
                and (host is None or (key.host or "") == host)
                and not (of_hosts and key.host is None)
                and (since_ms is None or _last_ms(session, key) >= since_ms)
            )

        def read(session: Session) -> list[MetricKey]:
            found: list[MetricKey] = []
            key = after
            while len(found) < limit and (key := _following(session, key, job_name)) is not None:
                if wanted(session, key):
                    found.append(key)
            return found

        return await self._database.read(read)


def _following(session: Session, after: MetricKey | None, job_name: str | None) -> MetricKey | None:
    """The next metric that exists: one look into the index, however many points each metric has."""
    columns = (MetricSample.job_name, MetricSample.name, MetricSample.host)
    query = select(*columns).order_by(*columns).limit(1)
    if job_name is not None:
        query = query.where(MetricSample.job_name == job_name)
    if after is not None:
        query = query.where(tuple_(*columns) > (after.job_name, after.name, after.host or ""))
    row = session.execute(query).first()
    return None if row is None else MetricKey(row.job_name, row.name, row.host or None)


def _last_ms(session: Session, key: MetricKey) -> int:
    newest = select(func.max(MetricSample.at_ms)).where(*_of(key.job_name, key.name, key.host))
    return int(session.execute(newest).scalar_one())


def _of(job_name: str, name: str, host: str | None) -> tuple[ColumnElement[bool], ...]:
    return (MetricSample.job_name == job_name, MetricSample.name == name, MetricSample.host == (host or ""))


def _rows(batch: MetricBatch) -> list[dict[str, object]]:
    digest = hashlib.blake2b(f"{batch.attempt_id}/{batch.source}".encode(), digest_size=4).digest()
    source = int.from_bytes(digest) >> (32 - _SOURCE_BITS)
    return [
        {
            "job_name": batch.job_name,
            "name": point.name,
            "host": point.host or "",
            "at_ms": point.timestamp_ms,
            "point": ((point.seq or 0) << _SOURCE_BITS) + source,
            "value": point.value,
        }
        for point in batch.points
        if math.isfinite(point.value)
    ]


def _insert(session: Session, rows: Sequence[dict[str, object]]) -> None:
    insert = postgresql.insert if session.get_bind().dialect.name == "postgresql" else sqlite.insert
    for start in range(0, len(rows), _ROWS_PER_INSERT):
        part = list(rows[start : start + _ROWS_PER_INSERT])
        session.execute(insert(MetricSample).values(part).on_conflict_do_nothing())
