"""What keeps a role from being deleted: jobs that have not ended, warm pools (of their last job's role), and quotas."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainshed_service.jobs.states import ACTIVE, ClusterState
from trainshed_service.store.tables import clusters, jobs, quotas
from trainshed_service.wire.errors import ApiError

_SHOWN = 5


def need_unused(session: Session, arn: str) -> None:
    """DeleteConflict with the names of what uses the role."""
    role = jobs.c.request["RoleArn"].as_string() == arn
    live = jobs.c.state.in_([state.value for state in ACTIVE])
    _refuse(
        arn, "jobs that have not ended", session.scalars(select(jobs.c.name).where(live, role).limit(_SHOWN + 1)).all()
    )
    kept = clusters.c.state.in_((ClusterState.HELD.value, ClusterState.WARM.value))
    warm = (
        select(jobs.c.name)
        .join(clusters, clusters.c.last_job_id == jobs.c.id)
        .where(kept, clusters.c.warm_until.is_not(None), role)
        .limit(_SHOWN + 1)
    )
    _refuse(arn, "warm pools of the jobs", session.scalars(warm).all())
    ruled = select(quotas.c.instance_type).where(quotas.c.subject_kind == "role", quotas.c.subject == arn)
    _refuse(arn, "quotas for the types", session.scalars(ruled.limit(_SHOWN + 1)).all())


def _refuse(arn: str, what: str, names: Sequence[str]) -> None:
    found = list(names)
    if found:
        more = " …" if len(found) > _SHOWN else ""
        shown = ", ".join(found[:_SHOWN])
        raise ApiError("DeleteConflict", f"The role {arn} cannot be deleted: {what} {shown}{more} use it.", 409)
