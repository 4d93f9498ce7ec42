"""The list of jobs: one page by a keyset cursor, so that none is missed or shown twice while jobs come and go.

Invariants: a page reads along an index of its order, or of the filter that is named first in `_LEADING`, and stops when
it is full; values of that filter are looked up one by one and merged, so *or* never turns into a walk over everything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, exists, func, or_, select
from sqlalchemy.orm import Session

from trainshed_service.dashboard.filters import JobFilter
from trainshed_service.identity.users import shown_name
from trainshed_service.jobs.reach import Reach
from trainshed_service.jobs.states import JobState
from trainshed_service.store.tables import jobs, roles, tags, users

PAGE = 50
MAX_OPTIONS = 200
_FEW = 500
_SORTS: dict[str, ColumnElement[Any]] = {
    "created": jobs.c.created_at,
    "changed": jobs.c.modified_at,
    "name": jobs.c.name,
    "status": jobs.c.state,
}


@dataclass(frozen=True)
class JobRow:
    """Times are epoch seconds. `types` like `ml.c5.xlarge × 2`."""

    id: int
    name: str
    state: JobState
    failure_reason: str | None
    stop_reason: str | None
    types: str
    user: str
    created_at: float
    started_at: float | None
    ended_at: float | None


@dataclass(frozen=True)
class JobRows:
    """`older` is the cursor of the next page; null at the end."""

    rows: list[JobRow]
    older: str | None


@dataclass(frozen=True)
class Options:
    """What the filters offer. Roles are names."""

    users: list[str]
    roles: list[str]
    types: list[str]


def read_jobs(session: Session, wanted: JobFilter, reach: Reach) -> JobRows:
    """One page of the jobs in reach that `wanted` lets through, in its order, behind its cursor."""
    column = _SORTS[wanted.sort]
    dimensions = _dimensions(session, wanted)
    if any(not values for _, values in dimensions):
        return JobRows([], None)
    conditions = [*reach.conditions(), *_bounds(session, wanted)]
    cursor = parse_cursor(wanted.before, is_text=wanted.sort in ("name", "status"))
    if cursor is not None:
        conditions.append(_behind(column, cursor, ascending=wanted.ascending))
    leading, others = _leading(dimensions, wanted)
    conditions += [dimension.in_(values) if len(values) > 1 else dimension == values[0] for dimension, values in others]
    found: list[Any] = []
    for value in leading[1] if leading else [None]:
        own = [] if leading is None else [leading[0] == value]
        found += _page(session, column, [*conditions, *own], ascending=wanted.ascending)
    if leading:  # else the database's order stands, whose letters may be ordered otherwise than here
        found.sort(key=lambda row: (row.sort_key, row.id), reverse=not wanted.ascending)
    page = found[:PAGE]
    more = len(found) > PAGE
    older = None
    if more:
        key = page[-1].sort_key
        older = f"{key if isinstance(key, str) else repr(key)}_{page[-1].id}"
    return JobRows([_row(row) for row in page], older)


def count_states(session: Session, reach: Reach) -> dict[JobState, int]:
    counted = select(jobs.c.state, func.count()).where(*reach.conditions()).group_by(jobs.c.state)
    return {JobState(state): count for state, count in session.execute(counted)}


def read_options(session: Session, reach: Reach) -> Options:
    """Users only for those who see more than their own jobs."""
    people = select(users.c.name).where(users.c.deleted_at.is_(None)).order_by(users.c.name).limit(MAX_OPTIONS)
    named = select(roles.c.name).order_by(roles.c.name).limit(MAX_OPTIONS)
    types = {each for joined in _instance_types(session) for each in joined.split(",") if each}
    return Options(
        users=list(session.scalars(people)) if reach.owner is None else [],
        roles=list(dict.fromkeys(session.scalars(named))),
        types=sorted(types),
    )


def parse_cursor(text: str | None, *, is_text: bool = False) -> tuple[float | str, int] | None:
    """The cursor's key and id; null for one that we did not give out (the list then starts anew)."""
    key, _, job_id = (text or "").rpartition("_")
    if not key or not job_id.isascii() or not job_id.isdigit() or len(job_id) > 18:
        return None
    if is_text:
        return key[:63], int(job_id)
    try:
        return float(key), int(job_id)
    except ValueError:
        return None


def types_of(resources: dict[str, Any] | None) -> str:
    """Instance types with their counts, of a ResourceConfig."""
    resources = resources or {}
    groups = resources.get("InstanceGroups") or []
    if groups:
        return ", ".join(f"{group['InstanceType']} × {group['InstanceCount']}" for group in groups)
    return f"{resources.get('InstanceType', '–')} × {resources.get('InstanceCount', 1)}"


_Dimension = tuple[ColumnElement[Any], list[Any]]


def _dimensions(session: Session, wanted: JobFilter) -> list[_Dimension]:
    """Column and wanted values of each filter that is set; no value: nothing can match. The most selective first."""
    found: list[_Dimension] = []
    if wanted.types:
        known = [joined for joined in _instance_types(session) if set(joined.split(",")) & set(wanted.types)]
        found.append((jobs.c.instance_types, known))
    if wanted.roles:
        named = select(roles.c.arn).where(or_(roles.c.name.in_(wanted.roles), roles.c.arn.in_(wanted.roles)))
        found.append((jobs.c.role_arn, list(session.scalars(named))))
    if wanted.users:
        people = select(users.c.id).where(users.c.name.in_(wanted.users))
        found.append((jobs.c.user_id, list(session.scalars(people))))
    if wanted.states:
        found.append((jobs.c.state, [state.value for state in wanted.states]))
    return found


def _leading(dimensions: list[_Dimension], wanted: JobFilter) -> tuple[_Dimension | None, list[_Dimension]]:
    """The filter whose index is walked, and the others. Their indexes are in the order of creation alone."""
    if not dimensions or wanted.sort != "created":
        return None, dimensions
    return dimensions[0], dimensions[1:]


def _bounds(session: Session, wanted: JobFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if wanted.since_epoch is not None:
        conditions.append(jobs.c.created_at >= wanted.since_epoch)
    if wanted.until_epoch is not None:
        conditions.append(jobs.c.created_at < wanted.until_epoch)
    if wanted.text:
        conditions.append(func.lower(jobs.c.name).contains(wanted.text.lower(), autoescape=True))
    if wanted.tags:
        conditions.append(_tagged(session, or_(*(_tag(each) for each in wanted.tags))))
    return conditions


def _tagged(session: Session, carries: ColumnElement[bool]) -> ColumnElement[bool]:
    """Rare tags lead to their jobs; of frequent ones each job that is looked at is asked, since a page is soon full."""
    few = session.scalars(select(tags.c.resource_arn).where(carries).limit(_FEW + 1)).all()
    if len(few) <= _FEW:
        return jobs.c.arn.in_(few)
    return exists().where(tags.c.resource_arn == jobs.c.arn, carries)


def _tag(text: str) -> ColumnElement[bool]:
    key, equals, value = text.partition("=")
    return and_(tags.c.key == key, tags.c.value == value) if equals else tags.c.key == key


def _behind(column: ColumnElement[Any], cursor: tuple[float | str, int], *, ascending: bool) -> ColumnElement[bool]:
    key, job_id = cursor
    if ascending:
        return and_(column >= key, or_(column > key, and_(column == key, jobs.c.id > job_id)))
    return and_(column <= key, or_(column < key, and_(column == key, jobs.c.id < job_id)))


def _page(
    session: Session, column: ColumnElement[Any], conditions: Iterable[ColumnElement[bool]], *, ascending: bool
) -> list[Any]:
    order = (column.asc(), jobs.c.id.asc()) if ascending else (column.desc(), jobs.c.id.desc())
    wanted = (
        select(
            jobs.c.id,
            jobs.c.name,
            jobs.c.state,
            jobs.c.failure_reason,
            jobs.c.stop_reason,
            jobs.c.request["ResourceConfig"].as_json().label("resources"),
            jobs.c.created_at,
            jobs.c.training_started_at,
            jobs.c.training_ended_at,
            users.c.name.label("user"),
            column.label("sort_key"),
        )
        .outerjoin(users, users.c.id == jobs.c.user_id)
        .where(*conditions)
        .order_by(*order)
        .limit(PAGE + 1)
    )
    return list(session.execute(wanted))


def _instance_types(session: Session) -> list[str]:
    """Every value there is: one look into the index for each, however many jobs have it."""
    found: list[str] = []
    while len(found) < MAX_OPTIONS:
        following = select(func.min(jobs.c.instance_types)).where(jobs.c.instance_types > (found[-1] if found else ""))
        value = session.scalar(following)
        if value is None:
            break
        found.append(value)
    return found


def _row(row: Any) -> JobRow:
    return JobRow(
        id=row.id,
        name=row.name,
        state=JobState(row.state),
        failure_reason=row.failure_reason,
        stop_reason=row.stop_reason,
        types=types_of(row.resources),
        user="" if row.user is None else shown_name(row.user),
        created_at=row.created_at,
        started_at=row.training_started_at,
        ended_at=row.training_ended_at,
    )
