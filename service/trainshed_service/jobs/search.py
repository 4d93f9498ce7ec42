"""Search over jobs: a predicate that the caller compiled, applied to whole descriptions, page by page.

Invariant: with `names` given only those rows are read; else rows are read in batches along an index, and a search that
matches little answers with a cursor rather than reading everything in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session

from trainshed_service.jobs.describe import COLUMNS, render, transitions_of
from trainshed_service.jobs.reach import EVERYBODY, Reach
from trainshed_service.jobs.tagging import get_tags
from trainshed_service.store import Database
from trainshed_service.store.tables import jobs

DEFAULT_LIMIT = 10
_BATCH = 200
_MAX_ROWS = 20_000

_SORT = {
    "CreationTime": jobs.c.created_at,
    "LastModifiedTime": jobs.c.modified_at,
    "TrainingJobName": jobs.c.name,
    "TrainingJobStatus": jobs.c.status,
    "TrainingStartTime": jobs.c.training_started_at,
    "TrainingEndTime": jobs.c.training_ended_at,
}
SORTABLE = frozenset(_SORT)


@dataclass(frozen=True)
class SearchPage:
    """`cursor` is null at the end; a page may hold fewer than asked for and yet have a cursor."""

    jobs: list[dict[str, Any]]
    cursor: list[Any] | None


async def search_jobs(
    database: Database,
    matches: Callable[[dict[str, Any]], bool],
    *,
    names: Sequence[str] | None,
    sort_by: str,
    descending: bool,
    limit: int,
    cursor: list[Any] | None,
    reach: Reach = EVERYBODY,
) -> SearchPage:
    found: list[dict[str, Any]] = []
    looked_at = 0
    while True:
        position = cursor
        batch = await database.read(
            lambda session: _batch(session, names, sort_by, descending, position, reach)  # noqa: B023
        )
        for key, job_id, job in batch:
            cursor = [key, job_id]
            if matches(job):
                found.append(job)
                if len(found) == limit:
                    return SearchPage(found, cursor)
        looked_at += len(batch)
        if len(batch) < _BATCH:
            return SearchPage(found, None)
        if looked_at >= _MAX_ROWS:
            return SearchPage(found, cursor)


def _batch(
    session: Session,
    names: Sequence[str] | None,
    sort_by: str,
    descending: bool,
    cursor: list[Any] | None,
    reach: Reach,
) -> list[tuple[Any, int, dict[str, Any]]]:
    column = _SORT.get(sort_by, jobs.c.modified_at)
    query = select(*COLUMNS, column.label("sort_key")).where(*reach.conditions())
    if names is not None:
        query = query.where(jobs.c.name.in_(list(names)))
    order = (
        (column.desc().nulls_last(), jobs.c.id.desc()) if descending else (column.asc().nulls_last(), jobs.c.id.asc())
    )
    if cursor is not None:
        key, job_id = cursor
        later_id = jobs.c.id < job_id if descending else jobs.c.id > job_id
        if key is None:
            query = query.where(and_(column.is_(None), later_id))
        else:
            beyond = column < key if descending else column > key
            query = query.where(or_(beyond, and_(column == key, later_id), column.is_(None)))
    rows = session.execute(query.order_by(*order).limit(_BATCH)).all()
    result = []
    for row in rows:
        job = render(row, transitions_of(session, row.id))
        job["Tags"] = get_tags(session, row.arn)
        result.append((row.sort_key, row.id, job))
    return result
