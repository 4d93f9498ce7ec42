"""What each job that has not ended holds, counted for hard quotas.

Invariants: while some quota is hard, every job that has not ended has its rows in `quota_holdings`, stored in the
transaction that stored the job; rows of jobs that have ended count nothing and are removed when somebody counts next,
so that counting costs what the subject holds, however many jobs wait or have ended. Without hard quotas there are no
rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, delete, exists, func, insert, select
from sqlalchemy.orm import Session

from trainshed_service.jobs.spec import gang
from trainshed_service.jobs.states import ACTIVE
from trainshed_service.quotas.rules import EVERY_TYPE, Rule
from trainshed_service.store.tables import jobs, quota_holdings

_AT_ONCE = 500


def needs(request: dict[str, Any]) -> Mapping[str, int]:
    """Instances by type that a request asks for."""
    return Counter(member.instance_type for member in gang(request))


def hold(session: Session, job_id: int, user_id: int | None, request: dict[str, Any]) -> None:
    """Count this job from now on."""
    session.execute(insert(quota_holdings), _rows(job_id, user_id, request))


def held(session: Session, rule: Rule) -> int:
    """Instances that the rule's subject holds of the rule's type."""
    total = select(func.coalesce(func.sum(quota_holdings.c.instances), 0)).where(*_of(rule), _is_live())
    return int(session.scalar(total) or 0)


def prune(session: Session, rule: Rule) -> None:
    """Remove rows of jobs that have ended, of those that `held` would look at."""
    session.execute(delete(quota_holdings).where(*_of(rule), ~_is_live()))


def rebuild(session: Session) -> None:
    """Count every job that has not ended; some quota has become hard."""
    clear(session)
    query = select(jobs.c.id, jobs.c.user_id, jobs.c.request).where(jobs.c.state.in_(_LIVE)).order_by(jobs.c.id)
    last = 0
    while rows := session.execute(query.where(jobs.c.id > last).limit(_AT_ONCE)).all():
        session.execute(
            insert(quota_holdings), [each for row in rows for each in _rows(row.id, row.user_id, row.request)]
        )
        last = rows[-1].id


def clear(session: Session) -> None:
    session.execute(delete(quota_holdings))


_LIVE = [state.value for state in ACTIVE]


def _is_live() -> ColumnElement[bool]:
    return exists().where(jobs.c.id == quota_holdings.c.job_id, jobs.c.state.in_(_LIVE))


def _of(rule: Rule) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if rule.subject_kind == "user":
        conditions.append(quota_holdings.c.user_id == rule.user_id)
    elif rule.subject_kind == "role":
        conditions.append(quota_holdings.c.role_arn == rule.subject)
    if rule.instance_type != EVERY_TYPE:
        conditions.append(quota_holdings.c.instance_type == rule.instance_type)
    return conditions


def _rows(job_id: int, user_id: int | None, request: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "job_id": job_id,
            "instance_type": instance_type,
            "instances": count,
            "user_id": user_id,
            "role_arn": request["RoleArn"],
        }
        for instance_type, count in needs(request).items()
    ]
