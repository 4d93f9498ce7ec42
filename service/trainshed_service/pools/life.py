"""The life of a warm pool: a cluster that is kept when its job has ended, until a job takes it or its time is over.

    held by a job ── the job ends, keep-alive > 0 ──> kept, being emptied ── every slot proven empty ──> available
    available ── a matching job is placed on it ──> held again      available ── expired, ended, a node lost ──> gone

Invariants:

* Taking and ending a pool are updates guarded by its state `warm`: exactly one of two that race wins, so no job is
  placed on a pool that ends, and no pool serves two jobs.
* While a pool is available every one of its nodes is `warm` with its cluster; when it ends they are free in the same
  transaction. A node of a cluster that is being kept goes from `leased` to `warm`, never through `free`.
* What the user sees of a pool stands on its last job: InUse, Available, Reused or Terminated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, select, update
from sqlalchemy.orm import Session

from trainshed_service.events import record
from trainshed_service.jobs.effects import Effects
from trainshed_service.jobs.states import ClusterState, NodeState, PoolStatus
from trainshed_service.scheduling.events import NodeFree, PoolAvailable, PoolEnded, offered
from trainshed_service.store.prepared import Prepared, set_where
from trainshed_service.store.tables import changed, clusters, jobs, nodes

_CLUSTER = Prepared(select(clusters).where(clusters.c.id == bindparam("cluster")).with_for_update())
_CREATED = Prepared(select(clusters.c.created_at).where(clusters.c.id == bindparam("cluster")))
_NODES_OF = Prepared(
    select(nodes.c.id, nodes.c.state).where(nodes.c.cluster_id == bindparam("cluster")).order_by(nodes.c.id)
)
_JOB = Prepared(select(jobs.c.name, jobs.c.arn, jobs.c.user_id).where(jobs.c.id == bindparam("job")))
_NOT_WARM = {"warm_since": None, "warm_until": None, "warn_at": None}


@dataclass(frozen=True)
class Kept:
    """The row of a cluster that is or is going to be a pool."""

    cluster_id: str
    state: ClusterState
    match_key: str
    match_fields: dict[str, Any]
    job_id: int
    since: float
    until: float


def find(session: Session, cluster_id: str) -> Kept | None:
    """The cluster as a pool; None where it is not kept. On PostgreSQL its row stays locked."""
    row = next(iter(_CLUSTER.find(session, {"cluster": cluster_id})), None)
    if row is None or row.warm_until is None or row.state not in (ClusterState.HELD, ClusterState.WARM):
        return None
    return kept_of(row)


def kept_of(row: Any) -> Kept:
    """From a row of `clusters` that is kept."""
    return Kept(
        row.id,
        ClusterState(row.state),
        row.match_key,
        row.match_fields,
        row.last_job_id,
        row.warm_since,
        row.warm_until,
    )


def keep(session: Session, cluster_id: str, job_id: int, seconds: float, now: float, most_life: float) -> bool:
    """The job has ended: keep its cluster for `seconds`, at most until it is `most_life` seconds old.

    False where it is that old already.
    """
    created = next((at for (at,) in _CREATED.run(session, {"cluster": cluster_id})), now)
    until = min(now + seconds, created + most_life)
    if until <= now:
        return False
    held = {"id": cluster_id, "state": ClusterState.HELD.value}
    return set_where(session, clusters, held, {"last_job_id": job_id, "warm_since": now, "warm_until": until}) == 1


def show(session: Session, job_id: int, status: PoolStatus, **values: Any) -> None:
    """What the job's owner sees of the pool. `modified_at` stays: the pool changed, not the job."""
    set_where(session, jobs, {"id": job_id}, {"pool_status": status.value, **values}, counting="version")


def open_pool(session: Session, kept: Kept, now: float) -> Effects:
    """All slots of a kept cluster are empty: it is available from now on, or, where a node is missing, at its end."""
    here = _NODES_OF.find(session, {"cluster": kept.cluster_id})
    warm = [row.id for row in here if row.state == NodeState.WARM]
    if len(warm) != kept.match_fields["ResourceConfig.InstanceCount"]:
        return end_pool(session, kept, now, "not all of its nodes are there any more")
    if kept.until <= now:
        return end_pool(session, kept, now, "its keep-alive period had passed when its slots were empty")
    held = {"id": kept.cluster_id, "state": ClusterState.HELD.value}
    if set_where(session, clusters, held, {"state": ClusterState.WARM.value}) != 1:
        return Effects()
    show(session, kept.job_id, PoolStatus.AVAILABLE)
    name, data = told_of(session, kept)
    record(
        session,
        now,
        "pool.available",
        f"job/{name}",
        f"The job's {instances_of(kept)} are kept warm for {kept.until - now:.0f} s",
        {**data, "until": kept.until},
    )
    return Effects(planner=[available(kept, data["userId"], warm)])


def available(kept: Kept, user_id: int | None, node_ids: list[str]) -> PoolAvailable:
    """The planner's event for a pool that is there."""
    return PoolAvailable(
        cluster_id=kept.cluster_id,
        pool_key=kept.match_key,
        role_arn=kept.match_fields["RoleArn"],
        user_id=user_id,
        instance_type=kept.match_fields["ResourceConfig.InstanceType"],
        node_ids=tuple(node_ids),
        since=kept.since,
        until=kept.until,
    )


def take(session: Session, cluster_id: str, job_name: str, epoch: int, now: float) -> bool:
    """Hold the pool for a new job under a new epoch; False where it is not available any more."""
    kept = find(session, cluster_id)
    if kept is None or kept.state is not ClusterState.WARM or kept.until <= now:
        return False
    warm = {"id": cluster_id, "state": ClusterState.WARM.value}
    values = {"state": ClusterState.HELD.value, "epoch": epoch, "last_job_id": None, **_NOT_WARM}
    if set_where(session, clusters, warm, values) != 1:
        return False
    seconds = round(now - kept.since)
    show(session, kept.job_id, PoolStatus.REUSED, pool_reused_by=job_name, pool_retained_seconds=seconds)
    name, data = told_of(session, kept)
    record(
        session,
        now,
        "pool.reused",
        f"job/{name}",
        f"The job's warm {instances_of(kept)} were taken by job {job_name} after {seconds} s",
        {**data, "reusedBy": job_name},
    )
    return True


def end_pool(session: Session, kept: Kept, now: float, why: str) -> Effects:
    """Give the nodes of a kept cluster back. Does nothing where somebody else was faster."""
    effects = Effects()
    gone = kept.state is ClusterState.WARM
    values: dict[str, Any] = dict(_NOT_WARM)
    if gone:
        values |= {"state": ClusterState.GONE.value, "released_at": now}
    count = changed(
        session,
        update(clusters)
        .where(
            clusters.c.id == kept.cluster_id,
            clusters.c.state == kept.state.value,
            clusters.c.warm_until.is_not(None),
        )
        .values(**values),
    )
    if count != 1:
        return effects
    effects.planner.append(PoolEnded(kept.cluster_id))  # or, where it was not available yet, it does not come any more
    # every agent that holds a part of it, emptied or not: what it keeps for the pool goes now
    effects.wake |= set(session.scalars(select(nodes.c.agent_id).where(nodes.c.cluster_id == kept.cluster_id)))
    freed = session.execute(
        select(nodes.c.id, nodes.c.agent_id, nodes.c.instance_types, nodes.c.draining_since)
        .where(nodes.c.cluster_id == kept.cluster_id, nodes.c.state == NodeState.WARM.value)
        .order_by(nodes.c.id)
    ).all()
    for row in freed:
        session.execute(
            update(nodes).where(nodes.c.id == row.id).values(state=NodeState.FREE.value, cluster_id=None, reason=None)
        )
        record(session, now, "node.free", f"node/{row.id}", f"Its warm pool ended: {why}")
        effects.planner.append(NodeFree(row.id, offered(row.instance_types, row.draining_since)))
        effects.wake.add(row.agent_id)
    seconds = max(0, round(now - kept.since))
    show(session, kept.job_id, PoolStatus.TERMINATED, pool_retained_seconds=seconds)
    name, data = told_of(session, kept)
    message = f"The job's warm {instances_of(kept)} were given back after {seconds} s: {why}"
    record(session, now, "pool.ended", f"job/{name}", message, {**data, "why": why, "keptSeconds": seconds})
    return effects


def end_pool_of_node(session: Session, node_id: str, now: float, why: str) -> Effects:
    """A node of a kept cluster goes away, and the pool with it."""
    cluster_id = session.scalar(select(nodes.c.cluster_id).where(nodes.c.id == node_id))
    kept = find(session, cluster_id) if cluster_id else None
    return end_pool(session, kept, now, why) if kept is not None else Effects()


def end_expired(session: Session, now: float) -> Effects:
    """Every pool whose time is over."""
    effects = Effects()
    late = session.scalars(
        select(clusters.c.id).where(clusters.c.state == ClusterState.WARM.value, clusters.c.warm_until <= now)
    ).all()
    for cluster_id in late:
        kept = find(session, cluster_id)
        if kept is not None and kept.until <= now:
            effects.add(end_pool(session, kept, now, "its keep-alive period has passed"))
    return effects


def next_expiry(session: Session) -> float | None:
    """When the first pool's time is over."""
    return session.scalar(
        select(clusters.c.warm_until)
        .where(clusters.c.state == ClusterState.WARM.value)
        .order_by(clusters.c.warm_until)
        .limit(1)
    )


def told_of(session: Session, kept: Kept) -> tuple[str, dict[str, Any]]:
    """Name of the job whose pool it is, and what every event of a pool says: enough to tell of it to those who may know
    when the job is deleted."""
    row = next(iter(_JOB.find(session, {"job": kept.job_id})), None)
    data = {
        "clusterId": kept.cluster_id,
        "jobId": kept.job_id,
        "jobArn": row.arn if row is not None else None,
        "userId": row.user_id if row is not None else None,
        "roleArn": kept.match_fields["RoleArn"],
        "instanceType": kept.match_fields["ResourceConfig.InstanceType"],
        "instanceCount": kept.match_fields["ResourceConfig.InstanceCount"],
    }
    return (row.name if row is not None else f"number {kept.job_id}, deleted since"), data


def instances_of(kept: Kept) -> str:
    """As people say it: 4 × ml.c5.xlarge."""
    return f"{kept.match_fields['ResourceConfig.InstanceCount']} × {kept.match_fields['ResourceConfig.InstanceType']}"
