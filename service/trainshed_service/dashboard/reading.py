"""What the list of jobs shows, read page by page with a keyset cursor: nothing shifts while jobs come and go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.orm import Session

from trainshed_service.jobs.reach import Reach
from trainshed_service.jobs.states import JobState
from trainshed_service.store.tables import jobs

PAGE = 50


@dataclass(frozen=True)
class JobRow:
    """Times are epoch seconds. `types` like `ml.c5.xlarge × 2`."""

    id: int
    name: str
    state: JobState
    failure_reason: str | None
    stop_reason: str | None
    types: str
    created_at: float
    started_at: float | None
    ended_at: float | None


@dataclass(frozen=True)
class JobRows:
    """`older` is the cursor of the next page; null at the end."""

    rows: list[JobRow]
    older: str | None


def read_jobs(session: Session, states: Sequence[JobState], text: str, before: str | None, reach: Reach) -> JobRows:
    """Newest first: jobs in reach, in one of `states` (empty: any), with `text` in their name, behind `before`."""
    conditions: list[ColumnElement[bool]] = reach.conditions()
    if states:
        conditions.append(jobs.c.state.in_([state.value for state in states]))
    if text:
        conditions.append(func.lower(jobs.c.name).contains(text.lower(), autoescape=True))
    cursor = parse_cursor(before)
    if cursor is not None:
        at, job_id = cursor
        conditions.append(jobs.c.created_at <= at)
        conditions.append(or_(jobs.c.created_at < at, and_(jobs.c.created_at == at, jobs.c.id < job_id)))
    rows = session.execute(
        select(
            jobs.c.id,
            jobs.c.name,
            jobs.c.state,
            jobs.c.failure_reason,
            jobs.c.stop_reason,
            jobs.c.request["ResourceConfig"].as_json().label("resources"),
            jobs.c.created_at,
            jobs.c.modified_at,
            jobs.c.training_started_at,
            jobs.c.training_ended_at,
        )
        .where(*conditions)
        .order_by(jobs.c.created_at.desc(), jobs.c.id.desc())
        .limit(PAGE + 1)
    ).all()
    page = rows[:PAGE]
    older = f"{page[-1].created_at!r}_{page[-1].id}" if len(rows) > PAGE else None
    return JobRows([_row(row) for row in page], older)


def count_states(session: Session, reach: Reach) -> dict[JobState, int]:
    counted = select(jobs.c.state, func.count()).where(*reach.conditions()).group_by(jobs.c.state)
    rows = session.execute(counted).all()
    return {JobState(state): count for state, count in rows}


def parse_cursor(text: str | None) -> tuple[float, int] | None:
    """The cursor's time and id; null for one that we did not give out (the list then starts anew)."""
    at, _, job_id = (text or "").partition("_")
    if not job_id.isascii() or not job_id.isdigit() or len(job_id) > 18:
        return None
    try:
        return float(at), int(job_id)
    except ValueError:
        return None


def types_of(resources: dict[str, Any] | None) -> str:
    """Instance types with their counts, of a ResourceConfig."""
    resources = resources or {}
    groups = resources.get("InstanceGroups") or []
    if groups:
        return ", ".join(f"{group['InstanceType']} × {group['InstanceCount']}" for group in groups)
    return f"{resources.get('InstanceType', '–')} × {resources.get('InstanceCount', 1)}"


def _row(row: Any) -> JobRow:
    return JobRow(
        id=row.id,
        name=row.name,
        state=JobState(row.state),
        failure_reason=row.failure_reason,
        stop_reason=row.stop_reason,
        types=types_of(row.resources),
        created_at=row.created_at,
        started_at=row.training_started_at,
        ended_at=row.training_ended_at,
    )
