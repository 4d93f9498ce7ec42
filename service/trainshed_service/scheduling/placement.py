"""Commits one placement: attempt, cluster, instances and node leases in one transaction, or none of them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, bindparam, select, update
from sqlalchemy.orm import Session

from trainshed_service.jobs.lifecycle import move_job, write_phase
from trainshed_service.jobs.states import AttemptState, Cause, ClusterState, JobState, NodeState, PoolStatus
from trainshed_service.pools.life import take
from trainshed_service.pools.match import keep_alive_seconds, key_of, match_fields, may_keep_warm
from trainshed_service.scheduling.events import Place
from trainshed_service.settings import Settings
from trainshed_service.store.prepared import Prepared, add_row, set_where
from trainshed_service.store.tables import attempts, changed, clusters, instances, jobs, meta, nodes

_JOB = Prepared(
    select(jobs.c.state, jobs.c.attempts, jobs.c.created_at, jobs.c.request).where(jobs.c.id == bindparam("job"))
)
_AGENT = Prepared(select(nodes.c.agent_id).where(nodes.c.id == bindparam("node")))
_META = Prepared(select(meta.c.value).where(meta.c.key == bindparam("wanted")))
_LOCK_META = Prepared(update(meta).where(meta.c.key == bindparam("wanted")).values(value=meta.c.value))
_EPOCH_KEY = "cluster_epoch"


class StaleDecision(RuntimeError):
    """What the planner decided on has changed meanwhile; nothing was written."""


@dataclass(frozen=True)
class Placement:
    """What was committed. `stream_names` in rank order; `request` as the job has it."""

    job_name: str
    attempt_id: str
    agent_ids: frozenset[str]
    stream_names: tuple[str, ...]
    request: dict[str, Any]


def stream_name(job_name: str, host: str, log_stream_epoch: int) -> str:
    return f"{job_name}/{host}-{log_stream_epoch}"


def log_stream_epoch(attempt_created_at: float) -> int:
    """The number that ends the log stream names of an attempt: its creation in epoch seconds."""
    return int(attempt_created_at)


def commit_place(session: Session, place: Place, now: float, settings: Settings) -> Placement:
    """StaleDecision (or IntegrityError, from the partial unique indexes) where it no longer holds."""
    job = place.job
    row = next(iter(_JOB.find(session, {"job": job.job_id})), None)
    if row is None or row.state != JobState.QUEUED:
        raise StaleDecision("the job is not queued any more")
    number = row.attempts + 1
    attempt_id = uuid.uuid4().hex
    cluster_id = _hold_nodes(session, place, row.request, now)
    add_row(
        session,
        attempts,
        {
            "id": attempt_id,
            "job_id": job.job_id,
            "number": number,
            "cluster_id": cluster_id,
            "state": AttemptState.PREPARING.value,
            "created_at": now,
            "deadline_at": now + settings.dispatch_deadline_seconds,
        },
    )
    hosts = [f"algo-{rank + 1}" for rank in range(len(place.nodes))]
    for rank, (node_id, member) in enumerate(zip(place.nodes, job.members, strict=True)):
        add_row(
            session,
            instances,
            {
                "id": f"{attempt_id}-{rank}",
                "attempt_id": attempt_id,
                "rank": rank,
                "node_id": node_id,
                "host": hosts[rank],
                "instance_type": member.instance_type,
                "instance_group": member.group,
                "revision": -1,
                "cleared": False,
            },
        )
    has_pool = place.pool is not None or (keep_alive_seconds(row.request) > 0 and may_keep_warm(row.request))
    pool_status = PoolStatus.IN_USE.value if has_pool else None
    moved = move_job(
        session, job.job_id, job.name, JobState.QUEUED, Cause.PLACED, now, attempts=number, pool_status=pool_status
    )
    if moved is None:
        raise StaleDecision("the job is not queued any more")
    write_phase(session, job.job_id, number, "service", "queue", row.created_at if number == 1 else now, now)
    epoch = log_stream_epoch(now)
    return Placement(
        job.name,
        attempt_id,
        frozenset(agent for node_id in place.nodes for (agent,) in _AGENT.run(session, {"node": node_id})),
        tuple(stream_name(job.name, host, epoch) for host in hosts),
        row.request,
    )


def _hold_nodes(session: Session, place: Place, request: dict[str, Any], now: float) -> str:
    """Lease the nodes to a new cluster, or to the warm pool that they are; its id."""
    epoch = _next_epoch(session)
    if place.pool is not None:
        cluster_id = place.pool
        if not take(session, cluster_id, place.job.name, epoch, now):
            raise StaleDecision("the warm pool is not available any more")
        held: ColumnElement[bool] = (nodes.c.state == NodeState.WARM.value) & (nodes.c.cluster_id == cluster_id)
    else:
        cluster_id = uuid.uuid4().hex
        fields = match_fields(request) if may_keep_warm(request) else None
        add_row(
            session,
            clusters,
            {
                "id": cluster_id,
                "state": ClusterState.HELD.value,
                "epoch": epoch,
                "created_at": now,
                "match_key": key_of(fields) if fields else None,
                "match_fields": fields,
            },
        )
        held = (nodes.c.state == NodeState.FREE.value) & nodes.c.draining_since.is_(None)
    taken = changed(
        session,
        update(nodes)
        .where(nodes.c.id.in_(place.nodes), held)
        .values(state=NodeState.LEASED.value, cluster_id=cluster_id, reason=None),
    )
    if taken != len(place.nodes):
        raise StaleDecision("a node is not free any more")
    return cluster_id


def avoided_nodes(session: Session, job_id: int) -> frozenset[str]:
    """Nodes on which an earlier attempt of the job failed by the node's fault."""
    rows = session.execute(
        select(attempts.c.outcome, instances.c.host, instances.c.node_id)
        .join(instances, instances.c.attempt_id == attempts.c.id)
        .where(attempts.c.job_id == job_id, attempts.c.outcome.is_not(None))
    )
    return frozenset(
        row.node_id
        for row in rows
        if row.outcome.get("host") == row.host and (row.outcome.get("failure") or {}).get("cause") == "node"
    )


def _next_epoch(session: Session) -> int:
    """A number above that of every earlier cluster, so that a node can tell an older assignment from a newer one."""
    wanted = {"wanted": _EPOCH_KEY}
    if _LOCK_META.change(session, wanted) == 0:
        add_row(session, meta, {"key": _EPOCH_KEY, "value": "0"})
    ((value,),) = _META.run(session, wanted)
    epoch = int(value) + 1
    set_where(session, meta, {"key": _EPOCH_KEY}, {"value": str(epoch)})
    return epoch
