"""UpdateTrainingJob's KeepAlivePeriodInSeconds: extends, shortens or (0) ends the pool of a job that has ended.

The new period counts from the update. Rules (AWS): only while the job's pool is there (its job has ended, no other has
taken it), only where the job was created with a keep-alive.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from trainshed_service.events import record
from trainshed_service.jobs.effects import Effects
from trainshed_service.jobs.states import TERMINAL, ClusterState, JobState, PoolStatus
from trainshed_service.pools.life import available, end_pool, find
from trainshed_service.pools.warning import set_warning
from trainshed_service.settings import Settings
from trainshed_service.store.tables import clusters, jobs, nodes
from trainshed_service.wire.constraints import Violation, describe
from trainshed_service.wire.errors import ApiError, validation_error


def check_keep_alive(seconds: int | None, settings: Settings) -> None:
    """ValidationException where the period is longer than this installation allows."""
    if seconds is not None and seconds > settings.max_keep_alive_seconds:
        text = f"Member must have value less than or equal to {settings.max_keep_alive_seconds}"
        path = "resourceConfig.keepAlivePeriodInSeconds"
        raise validation_error(describe([Violation(path, f"'{seconds}'", text)]))


def change_keep_alive(session: Session, job: Any, seconds: int, now: float, settings: Settings) -> Effects:
    """`job` has id, name, user_id, state, status, request and pool_status. ValidationException where it has no pool."""
    check_keep_alive(seconds, settings)
    cluster = session.execute(
        select(clusters.c.id, clusters.c.created_at).where(
            clusters.c.last_job_id == job.id,
            clusters.c.state.in_((ClusterState.HELD.value, ClusterState.WARM.value)),
            clusters.c.warm_until.is_not(None),
        )
    ).first()
    kept = find(session, cluster.id) if cluster is not None else None
    if cluster is None or kept is None or kept.job_id != job.id:
        raise _no_pool(job)
    request = dict(job.request)
    request["ResourceConfig"] = {**request["ResourceConfig"], "KeepAlivePeriodInSeconds": seconds}
    session.execute(
        update(jobs).where(jobs.c.id == job.id).values(request=request, modified_at=now, version=jobs.c.version + 1)
    )
    if seconds == 0:
        return end_pool(session, kept, now, "its keep-alive period was set to 0")
    until = min(now + seconds, cluster.created_at + settings.max_cluster_life_seconds)
    session.execute(update(clusters).where(clusters.c.id == kept.cluster_id).values(warm_until=until))
    set_warning(session, kept.cluster_id, now, settings.pool_warning_seconds)
    message = f"The job's instances are kept warm for another {until - now:.0f} s"
    record(session, now, "pool.updated", f"job/{job.name}", message, {"until": until, "clusterId": kept.cluster_id})
    changed_pool = find(session, kept.cluster_id)
    if changed_pool is None or changed_pool.state is not ClusterState.WARM:
        return Effects()
    here = session.scalars(select(nodes.c.id).where(nodes.c.cluster_id == kept.cluster_id).order_by(nodes.c.id)).all()
    return Effects(planner=[available(changed_pool, job.user_id, list(here))])


def _no_pool(job: Any) -> ApiError:
    if JobState(job.state) not in TERMINAL:
        return validation_error(
            f"The request was rejected because the training job is in status {job.status}. The keep-alive period "
            "can be changed when the job has ended and its warm pool is available."
        )
    if job.pool_status == PoolStatus.REUSED:
        what = "its warm pool was taken by another job, whose own keep-alive period counts now"
    elif job.pool_status == PoolStatus.TERMINATED:
        what = "its warm pool has been terminated"
    else:
        what = "it was created without a KeepAlivePeriodInSeconds and has no warm pool"
    return validation_error(f"The request was rejected because the training job has no warm pool to update: {what}.")
