"""Whether the cluster of a job that just ended becomes a warm pool.

Rule (AWS, managed warm pools): after success, after a stop, and after a failure that is the algorithm's or the user's;
never after a fault that puts the health of the instances in doubt, and not where the quota of warm instances is used
up, nor where one of them is being drained.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainshed_service.events import record
from trainshed_service.jobs.attempts import Live
from trainshed_service.jobs.states import TERMINAL, JobState, PoolStatus
from trainshed_service.pools.coming import coming_pools
from trainshed_service.pools.life import keep, show
from trainshed_service.pools.match import keep_alive_seconds, may_keep_warm
from trainshed_service.pools.warning import set_warning
from trainshed_service.quotas.warm import warm_room
from trainshed_service.scheduling.events import PlannerEvent
from trainshed_service.settings import Settings
from trainshed_service.store.tables import jobs, nodes
from trainshed_worker.protocol import FailureCause, InstanceFailure


def keep_cluster(
    session: Session, live: Live, failure: InstanceFailure | None, now: float, settings: Settings
) -> Sequence[PlannerEvent]:
    """Called in the transaction in which the attempt ended. Where no pool remains, the job shows Terminated.

    What the planner is to be told: that a pool is coming.
    """
    row = session.execute(
        select(jobs.c.state, jobs.c.pool_status, jobs.c.request, jobs.c.user_id, jobs.c.instance_count).where(
            jobs.c.id == live.job_id
        )
    ).one()
    if JobState(row.state) not in TERMINAL or row.pool_status is None:
        return ()
    seconds = keep_alive_seconds(row.request) if may_keep_warm(row.request) else 0
    room = _room(session, row) if seconds else None
    if seconds == 0:
        why = "the job asked for no keep-alive"
    elif failure is not None and failure.cause is FailureCause.NODE:
        why = "an instance failed, so that its health is in doubt"
    elif room is not None and room < row.instance_count:
        why = f"a quota of warm instances has room for {room}, and they are {row.instance_count}"
    elif _is_draining(session, live.cluster_id):
        why = "a node is being drained"
    elif not keep(session, live.cluster_id, live.job_id, seconds, now, settings.max_cluster_life_seconds):
        why = f"they were held for {settings.max_cluster_life_seconds:g} s, the longest that is allowed"
    else:
        set_warning(session, live.cluster_id, now, settings.pool_warning_seconds)
        return coming_pools(session, settings.pool_coming_seconds, live.cluster_id)
    show(session, live.job_id, PoolStatus.TERMINATED, pool_retained_seconds=0)
    record(session, now, "pool.not_kept", f"job/{live.job_name}", f"The job's instances are not kept warm: {why}")
    return ()


def _is_draining(session: Session, cluster_id: str) -> bool:
    of_it = select(nodes.c.id).where(nodes.c.cluster_id == cluster_id, nodes.c.draining_since.is_not(None))
    return session.execute(of_it.limit(1)).first() is not None


def _room(session: Session, job: Any) -> int | None:
    """How many instances the job's user and role may keep warm yet; None: as many as they like."""
    instance_type = job.request["ResourceConfig"]["InstanceType"]
    return warm_room(session, job.user_id, job.request["RoleArn"], instance_type)
