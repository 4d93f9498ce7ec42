"""Lists jobs page by page with a keyset cursor: jobs that are added or removed meanwhile shift nothing.

Only the columns that a summary shows are read, along an index of the order asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Integer, and_, bindparam, func, or_, select

from trainshed_service.jobs.describe import pool_status
from trainshed_service.jobs.reach import EVERYBODY, Reach, owner_condition
from trainshed_service.store import Database
from trainshed_service.store.prepared import Prepared, Row
from trainshed_service.store.tables import jobs

DEFAULT_PAGE = 10
MAX_PAGE = 100

_ORDERS: dict[str, tuple[ColumnElement[Any], ...]] = {
    "CreationTime": (jobs.c.created_at, jobs.c.id),
    "Name": (jobs.c.name,),
    "Status": (jobs.c.status, jobs.c.created_at, jobs.c.id),
}
_COLUMNS = (
    jobs.c.id,
    jobs.c.name,
    jobs.c.arn,
    jobs.c.created_at,
    jobs.c.modified_at,
    jobs.c.training_ended_at,
    jobs.c.status,
    jobs.c.secondary_status,
    jobs.c.pool_status,
    jobs.c.pool_retained_seconds,
    jobs.c.pool_reused_by,
)
_STATUS = 6


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


async def list_jobs(database: Database, query: JobQuery, cursor: list[Any] | None, reach: Reach = EVERYBODY) -> JobPage:
    """One page of the jobs in reach. With a status *and* a limit, AWS takes `limit` jobs first and filters them then;
    so do we."""
    if query.training_plan_arn is not None:
        return JobPage([], None)  # no job of this installation has one
    limit = min(query.limit or DEFAULT_PAGE, MAX_PAGE)
    values = {**_values(query), **owner_condition(reach), "limit": limit + 1}
    values |= {f"cursor_{n}": value for n, value in enumerate(cursor or ())}
    statement = _statement(query.sort_by, query.descending, frozenset(values))
    if _is_short(query, reach):
        rows = await database.look(statement, values)
    else:
        rows = await database.read(lambda session: statement.run(session, values))
    page = rows[:limit]
    keys = [_COLUMNS.index(column) for column in _ORDERS[query.sort_by]]
    following = [page[-1][key] for key in keys] if len(rows) > limit else None
    if query.status is not None and query.limit is not None:
        page = [row for row in page if row[_STATUS] == query.status]
    return JobPage([summary(row) for row in page], following)


def summary(row: Row) -> dict[str, Any]:
    """A row of `_COLUMNS` as TrainingJobSummary."""
    _, name, arn, created_at, modified_at, training_ended_at, status, secondary_status, *pool = row
    answer = {
        "TrainingJobName": name,
        "TrainingJobArn": arn,
        "CreationTime": created_at,
        "LastModifiedTime": modified_at,
        "TrainingJobStatus": status,
        "SecondaryStatus": secondary_status,
    }
    if training_ended_at is not None:
        answer["TrainingEndTime"] = training_ended_at
    warm = pool_status(*pool)
    if warm is not None:
        answer["WarmPoolStatus"] = warm
    return answer


def epoch(value: Any) -> float | None:
    """A timestamp of a request (epoch number or datetime) in epoch seconds."""
    if value is None:
        return None
    return value.timestamp() if isinstance(value, datetime) else float(value)


def _values(query: JobQuery) -> dict[str, Any]:
    """The parameters of the filters that the query has."""
    name = query.name_contains
    values = {
        "created_after": query.created_after,
        "created_before": query.created_before,
        "modified_after": query.modified_after,
        "modified_before": query.modified_before,
        "pattern": "%" + re.sub(r"([%_/])", r"/\1", name.lower()) + "%" if name else None,
        "status": query.status if query.limit is None else None,
        "pool_status": query.warm_pool_status,
    }
    return {parameter: value for parameter, value in values.items() if value is not None}


def _is_short(query: JobQuery, reach: Reach) -> bool:
    """Every row that is looked at is in the page: the order's own index (one user's jobs have one by time) leads to
    them."""
    filtered = _values(query).keys()
    return (not filtered and reach.owner is None) or (
        query.sort_by == "CreationTime" and filtered <= {"created_after", "created_before"}
    )


@lru_cache(maxsize=512)
def _statement(sort_by: str, descending: bool, parameters: frozenset[str]) -> Prepared:
    """The statement that has exactly these parameters."""
    conditions = {
        "created_after": jobs.c.created_at > bindparam("created_after"),
        "created_before": jobs.c.created_at < bindparam("created_before"),
        "modified_after": jobs.c.modified_at > bindparam("modified_after"),
        "modified_before": jobs.c.modified_at < bindparam("modified_before"),
        "pattern": func.lower(jobs.c.name).like(bindparam("pattern"), escape="/"),
        "status": jobs.c.status == bindparam("status"),
        "pool_status": jobs.c.pool_status == bindparam("pool_status"),
        "owner": jobs.c.user_id == bindparam("owner"),
    }
    wanted = [condition for parameter, condition in conditions.items() if parameter in parameters]
    order = _ORDERS[sort_by]
    if "cursor_0" in parameters:
        wanted.append(_behind(order, descending))
    return Prepared(
        select(*_COLUMNS)
        .where(*wanted)
        .order_by(*(column.desc() if descending else column.asc() for column in order))
        .limit(bindparam("limit", type_=Integer))
    )


def _behind(order: tuple[ColumnElement[Any], ...], descending: bool) -> ColumnElement[bool]:
    """Rows behind the cursor in this order: (a, b) > (x, y) written out, with the leading bound for the index."""
    cursor = [bindparam(f"cursor_{number}", type_=column.type) for number, column in enumerate(order)]
    steps: list[ColumnElement[bool]] = []
    for index, (column, value) in enumerate(zip(order, cursor, strict=True)):
        same = [before == known for before, known in zip(order[:index], cursor[:index], strict=True)]
        steps.append(and_(*same, column < value if descending else column > value))
    leading = order[0] <= cursor[0] if descending else order[0] >= cursor[0]
    return and_(leading, or_(*steps))
