"""Telling of a pool's end before it comes: once for each end that is set, in time for somebody to act.

Rule: `pool_warning_seconds` before the end; where the period is shorter than twice that, at its half. A change of the
end (extended, shortened) sets the next warning. Invariant: the event and the mark that it was recorded are one
transaction, guarded by the time that was set: two that look at once record it once.
"""

from __future__ import annotations

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from trainshed_service.events import record
from trainshed_service.jobs.states import ClusterState
from trainshed_service.pools.life import find, instances_of, told_of
from trainshed_service.store.tables import changed, clusters


def warning_time(now: float, until: float, warning_seconds: float) -> float | None:
    """When to tell of a pool that is kept from `now` on until `until` (epoch seconds); None: not at all."""
    if warning_seconds <= 0 or until <= now:
        return None
    return until - min(warning_seconds, (until - now) / 2)


def set_warning(session: Session, cluster_id: str, now: float, warning_seconds: float) -> None:
    """To be called wherever `warm_until` was set."""
    until = session.scalar(select(clusters.c.warm_until).where(clusters.c.id == cluster_id))
    at = None if until is None else warning_time(now, until, warning_seconds)
    session.execute(update(clusters).where(clusters.c.id == cluster_id).values(warn_at=at))


def warn(session: Session, now: float) -> None:
    """Record `pool.expiring` for every pool whose warning is due. Expired ones are to be ended before."""
    due = session.execute(
        select(clusters.c.id, clusters.c.warn_at).where(
            clusters.c.state == ClusterState.WARM.value, clusters.c.warn_at <= now
        )
    ).all()
    for row in due:
        marked = changed(
            session,
            update(clusters)
            .where(
                clusters.c.id == row.id,
                clusters.c.warn_at == row.warn_at,
                clusters.c.state == ClusterState.WARM.value,
            )
            .values(warn_at=None),
        )
        kept = find(session, row.id) if marked else None
        if kept is None or kept.until <= now:
            continue
        name, data = told_of(session, kept)
        left = kept.until - now
        record(
            session,
            now,
            "pool.expiring",
            f"job/{name}",
            f"The job's warm {instances_of(kept)} are given back in {left:.0f} s",
            {**data, "until": kept.until, "secondsLeft": round(left)},
        )


def next_warning(session: Session) -> float | None:
    """When the first warning is due."""
    return session.scalar(
        select(clusters.c.warn_at)
        .where(clusters.c.state == ClusterState.WARM.value, clusters.c.warn_at.is_not(None))
        .order_by(clusters.c.warn_at)
        .limit(1)
    )
