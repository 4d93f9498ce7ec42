"""The database as planner events: what a state is rebuilt from.

Order: quotas and usage, then nodes, who holds them, then the queue. Of agents that were not heard from since the start
of this process nothing is said; theirs comes when they are heard from. Jobs whose last attempt is not yet cleared are
not in the queue; they come when it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import func, insert, select, update
from sqlalchemy.orm import Session

from trainshed_service.jobs.spec import Member, max_runtime_seconds
from trainshed_service.jobs.states import LIVE_ATTEMPT, AttemptState, ClusterState, JobState, NodeState
from trainshed_service.pools.coming import coming_pools
from trainshed_service.pools.life import available, kept_of
from trainshed_service.pools.match import match_key
from trainshed_service.quotas.rules import soft_quotas
from trainshed_service.scheduling.events import (
    JobQueued,
    NodeFree,
    NodeTaken,
    PlannerEvent,
    PoolAvailable,
    PoolComing,
    Running,
    Usage,
    offered,
)
from trainshed_service.scheduling.placement import avoided_nodes
from trainshed_service.store.tables import attempts, changed, clusters, instances, jobs, nodes, usage, users

Expect = Callable[[int | None, dict[str, Any]], float | None]
"""(user, request) → how long jobs like it ran."""
_NODE = (nodes.c.id, nodes.c.agent_id, nodes.c.instance_types, nodes.c.state, nodes.c.draining_since)
_LIVE = [state.value for state in LIVE_ATTEMPT]


def load_events(session: Session, present: set[str], expect: Expect, coming: float) -> list[PlannerEvent]:
    """All that the planner has to know."""
    events: list[PlannerEvent] = [soft_quotas(session)]
    for row in session.execute(select(usage)):
        events.append(Usage(row.user_id, row.instance_seconds, row.at))
    here: set[str] = set()
    for row in session.execute(select(*_NODE)):
        if row.agent_id in present:
            node = _node_event(row)
            if node is not None:
                here.add(row.id)
                events.append(node)
    events += _holders(session, here, expect, coming)
    live = select(attempts.c.job_id).where(attempts.c.state.in_(_LIVE))
    rows = session.execute(
        _queued().where(jobs.c.state == JobState.QUEUED.value, jobs.c.id.not_in(live)).order_by(jobs.c.id)
    )
    events += [_queued_event(session, row, expect) for row in rows]
    return events


def load_agent(session: Session, agent_id: str, present: set[str], expect: Expect, coming: float) -> list[PlannerEvent]:
    """The nodes of an agent that was just heard from for the first time, and who holds them. `present`: all such."""
    own: dict[str, PlannerEvent] = {}
    here: set[str] = set()
    query = select(*_NODE)
    for row in session.execute(query.where(nodes.c.agent_id.in_(present | {agent_id})).order_by(nodes.c.id)):
        event = _node_event(row)
        if event is not None:
            here.add(row.id)
            if row.agent_id == agent_id:
                own[row.id] = event
    holders = [
        holder for holder in _holders(session, here, expect, coming) if not own.keys().isdisjoint(holder.node_ids)
    ]
    return [*own.values(), *holders]


def load_queued(session: Session, job_id: int, expect: Expect | None = None) -> JobQueued | None:
    """A job that waits, as the planner has to know it; None where it does not wait."""
    row = session.execute(_queued().where(jobs.c.id == job_id, jobs.c.state == JobState.QUEUED.value)).first()
    return _queued_event(session, row, expect or (lambda user, request: None)) if row is not None else None


def store_usage(session: Session, used: dict[int, float], at: float) -> None:
    """Keep what users have used, for the next start. Users that were deleted meanwhile are left out."""
    if not used:
        return
    known = set(session.scalars(select(users.c.id).where(users.c.id.in_(used))))
    for user_id in sorted(known):
        values = {"instance_seconds": used[user_id], "at": at}
        if changed(session, update(usage).where(usage.c.user_id == user_id).values(**values)) == 0:
            session.execute(insert(usage).values(user_id=user_id, **values))


def _node_event(row: Any) -> PlannerEvent | None:
    types = offered(row.instance_types, row.draining_since)
    if row.state == NodeState.FREE:
        return NodeFree(row.id, types)
    if row.state in (NodeState.LEASED, NodeState.WARM):
        return NodeTaken(row.id, types)
    return None


def _holders(
    session: Session, here: set[str], expect: Expect, coming: float
) -> list[Running | PoolAvailable | PoolComing]:
    """What runs on these nodes, and the warm pools (also coming ones) all of whose nodes are among them."""
    events: list[Running | PoolAvailable | PoolComing] = []
    held = session.execute(
        select(instances.c.attempt_id, instances.c.node_id, instances.c.instance_type, instances.c.instance_group)
        .where(instances.c.cleared.is_(False))
        .order_by(instances.c.attempt_id, instances.c.rank)
    )
    by_attempt: dict[str, list[tuple[str, Member]]] = defaultdict(list)
    for row in held:
        if row.node_id in here:
            by_attempt[row.attempt_id].append((row.node_id, Member(row.instance_type, row.instance_group)))
    running = session.execute(
        select(
            attempts.c.id,
            attempts.c.job_id,
            attempts.c.state,
            attempts.c.created_at,
            attempts.c.running_at,
            attempts.c.deadline_at,
            jobs.c.user_id,
            jobs.c.request,
        )
        .join(jobs, jobs.c.id == attempts.c.job_id)
        .where(attempts.c.state.in_(_LIVE))
        .order_by(attempts.c.job_id)
    )
    events += [_running_event(row, by_attempt[row.id], expect) for row in running if row.id in by_attempt]
    events += [pool for pool in _pools(session) if here.issuperset(pool.node_ids)]
    events += [pool for pool in coming_pools(session, coming) if here.issuperset(pool.node_ids)]
    return events


def _running_event(row: Any, held: Sequence[tuple[str, Member]], expect: Expect) -> Running:
    limit = max_runtime_seconds(row.request)
    begun = row.running_at if row.running_at is not None else row.created_at
    expected = expect(row.user_id, row.request)
    return Running(
        job_id=row.job_id,
        user_id=row.user_id,
        role_arn=str(row.request.get("RoleArn", "")),
        node_ids=tuple(node_id for node_id, _ in held),
        members=tuple(member for _, member in held),
        started_at=row.created_at,
        ends_at=row.deadline_at if row.state == AttemptState.RUNNING else begun + limit,
        expected_end=begun + expected if expected is not None else None,
    )


def _pools(session: Session) -> list[PoolAvailable]:
    members: dict[str, list[str]] = defaultdict(list)
    for row in session.execute(
        select(nodes.c.id, nodes.c.cluster_id).where(nodes.c.state == NodeState.WARM.value).order_by(nodes.c.id)
    ):
        members[row.cluster_id].append(row.id)
    rows = session.execute(
        select(clusters, jobs.c.user_id)
        .join(jobs, jobs.c.id == clusters.c.last_job_id, isouter=True)
        .where(clusters.c.state == ClusterState.WARM.value)
        .order_by(clusters.c.id)
    )
    return [available(kept_of(row), row.user_id, members[row.id]) for row in rows]


def _queued() -> Any:
    last_end = (
        select(func.max(attempts.c.ended_at)).where(attempts.c.job_id == jobs.c.id).correlate(jobs).scalar_subquery()
    )
    return select(
        jobs.c.id,
        jobs.c.name,
        jobs.c.request,
        jobs.c.attempts,
        jobs.c.user_id,
        jobs.c.priority,
        jobs.c.created_at,
        last_end.label("last_end"),
    )


def _queued_event(session: Session, row: Any, expect: Expect) -> JobQueued:
    return JobQueued.of(
        row.id,
        row.name,
        row.request,
        avoided_nodes(session, row.id) if row.attempts else frozenset(),
        user_id=row.user_id,
        priority=row.priority,
        queued_at=row.last_end if row.last_end is not None else row.created_at,
        expected_seconds=expect(row.user_id, row.request),
        pool_key=match_key(row.request),
    )
