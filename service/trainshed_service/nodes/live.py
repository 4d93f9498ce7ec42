"""What is under way, read from the rows: attempts that are not cleared, the agents that hold them, their jobs."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainshed_service.jobs.states import LIVE_ATTEMPT
from trainshed_service.scheduling.placement import log_stream_epoch, stream_name
from trainshed_service.store.tables import attempts, instances, jobs, nodes


def live_attempts(session: Session) -> list[tuple[str, str, list[str]]]:
    """(attempt, job name, log streams) of every attempt that is not cleared."""
    found = session.execute(
        select(attempts.c.id, attempts.c.created_at, jobs.c.name)
        .join(jobs, jobs.c.id == attempts.c.job_id)
        .where(attempts.c.state.in_([state.value for state in LIVE_ATTEMPT]))
        .order_by(attempts.c.created_at)
    ).all()
    result = []
    for row in found:
        hosts = session.scalars(
            select(instances.c.host).where(instances.c.attempt_id == row.id).order_by(instances.c.rank)
        )
        epoch = log_stream_epoch(row.created_at)
        result.append((row.id, row.name, [stream_name(row.name, host, epoch) for host in hosts]))
    return result


def agents_of(session: Session, attempt_ids: Sequence[str]) -> set[str]:
    return set(
        session.scalars(
            select(nodes.c.agent_id)
            .join(instances, instances.c.node_id == nodes.c.id)
            .where(instances.c.attempt_id.in_(attempt_ids))
        )
    )


def job_name(session: Session, attempt_id: str) -> str | None:
    return session.scalar(
        select(jobs.c.name).join(attempts, attempts.c.job_id == jobs.c.id).where(attempts.c.id == attempt_id)
    )
