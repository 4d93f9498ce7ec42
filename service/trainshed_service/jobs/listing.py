"""Lists jobs page by page with a keyset cursor: jobs that are added or removed meanwhile shift nothing.

Only the columns that a summary shows are read, along an index of the order asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, or_, select
from sqlalchemy.orm import Session

from trainshed_service.store.tables import jobs

DEFAULT_PAGE = 10
MAX_PAGE = 100

_ORDERS: dict[str, tuple[ColumnElement[Any], ...]] = {
    "CreationTime": (jobs.c.created_at, jobs.c.id),
    "Name": (jobs.c.name,),
    "Status": (jobs.c.status, jobs.c.created_at, jobs.c.id),
}


@dataclass(frozen=True)
class JobQuery:
    """The members of ListTrainingJobs. Times are epoch seconds, both bounds excluded."""

    limit: int | None = None
    created_after: float | None = None
    created_before: float | None = None
    modified_after: float | None = None
    modified_before: float | None = None
    name_contains: str | None = None
    status: str | None = None
    warm_pool_status: str | None = None
    training_plan_arn: str | None = None
    sort_by: str = "CreationTime"
    descending: bool = True

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> JobQuery:
        """From a validated ListTrainingJobs request."""
        return cls(
            limit=request.get("MaxResults"),
            created_after=epoch(request.get("CreationTimeAfter")),
            created_before=epoch(request.get("CreationTimeBefore")),
            modified_after=epoch(request.get("LastModifiedTimeAfter")),
            modified_before=epoch(request.get("LastModifiedTimeBefore")),
            name_contains=request.get("NameContains"),
            status=request.get("StatusEquals"),
            warm_pool_status=request.get("WarmPoolStatusEquals"),
            training_plan_arn=request.get("TrainingPlanArnEquals"),
            sort_by=request.get("SortBy") or "CreationTime",
            descending=(request.get("SortOrder") or "Descending") == "Descending",
        )


@dataclass(frozen=True)
class JobPage:
    """`cursor` continues behind the last row looked at; null at the end."""

    summaries: list[dict[str, Any]]
    cursor: list[Any] | None


def list_jobs(session: Session, query: JobQuery, cursor: list[Any] | None) -> JobPage:
    """One page. With a status *and* a limit, AWS takes `limit` jobs first and filters them then; so do we."""
    if query.warm_pool_status is not None or query.training_plan_arn is not None:
        return JobPage([], None)  # no job of this installation has either
    limit = min(query.limit or DEFAULT_PAGE, MAX_PAGE)
    rows = session.execute(_select(query, cursor).limit(limit + 1)).all()
    page = rows[:limit]
    keys = [column.key for column in _ORDERS[query.sort_by]]
    following = [getattr(page[-1], str(key)) for key in keys] if len(rows) > limit else None
    if query.status is not None and query.limit is not None:
        page = [row for row in page if row.status == query.status]
    return JobPage([summary(row) for row in page], following)


def summary(row: Any) -> dict[str, Any]:
    """A row as TrainingJobSummary."""
    answer = {
        "TrainingJobName": row.name,
        "TrainingJobArn": row.arn,
        "CreationTime": row.created_at,
        "LastModifiedTime": row.modified_at,
        "TrainingJobStatus": row.status,
        "SecondaryStatus": row.secondary_status,
    }
    if row.training_ended_at is not None:
        answer["TrainingEndTime"] = row.training_ended_at
    return answer


def epoch(value: Any) -> float | None:
    """A timestamp of a request (epoch number or datetime) in epoch seconds."""
    if value is None:
        return None
    return value.timestamp() if isinstance(value, datetime) else float(value)


def _select(query: JobQuery, cursor: list[Any] | None) -> Select[Any]:
    statement = select(
        jobs.c.id,
        jobs.c.name,
        jobs.c.arn,
        jobs.c.created_at,
        jobs.c.modified_at,
        jobs.c.training_ended_at,
        jobs.c.status,
        jobs.c.secondary_status,
    )
    conditions: list[ColumnElement[bool]] = []
    for bound, column, above in (
        (query.created_after, jobs.c.created_at, True),
        (query.created_before, jobs.c.created_at, False),
        (query.modified_after, jobs.c.modified_at, True),
        (query.modified_before, jobs.c.modified_at, False),
    ):
        if bound is not None:
            conditions.append(column > bound if above else column < bound)
    if query.name_contains:
        conditions.append(func.lower(jobs.c.name).contains(query.name_contains.lower(), autoescape=True))
    if query.status is not None and query.limit is None:
        conditions.append(jobs.c.status == query.status)
    order = _ORDERS[query.sort_by]
    if cursor is not None:
        conditions.append(_behind(order, cursor, query.descending))
    return statement.where(*conditions).order_by(
        *(column.desc() if query.descending else column.asc() for column in order)
    )


def _behind(order: tuple[ColumnElement[Any], ...], cursor: list[Any], descending: bool) -> ColumnElement[bool]:
    """Rows behind the cursor in this order: (a, b) > (x, y) written out, with the leading bound for the index."""
    steps: list[ColumnElement[bool]] = []
    for index, (column, value) in enumerate(zip(order, cursor, strict=True)):
        same = [before == known for before, known in zip(order[:index], cursor[:index], strict=True)]
        steps.append(and_(*same, column < value if descending else column > value))
    leading = order[0] <= cursor[0] if descending else order[0] >= cursor[0]
    return and_(leading, or_(*steps))
