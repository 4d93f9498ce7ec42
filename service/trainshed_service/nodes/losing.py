"""What the loss of a host means to its attempt: an infrastructure fault, never a success and never the user's error."""

from __future__ import annotations

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from trainshed_service.events import record
from trainshed_service.jobs.attempts import advance, blame, end, load
from trainshed_service.jobs.effects import Effects
from trainshed_service.jobs.states import AttemptState, NodeState
from trainshed_service.pools.life import end_pool_of_node
from trainshed_service.scheduling.events import NodeGone
from trainshed_service.settings import Settings
from trainshed_service.store.tables import agents, changed, instances, nodes
from trainshed_worker.protocol import EndReason, FailureCause, InstanceFailure


def fail_host(
    session: Session,
    attempt_id: str,
    rank: int,
    message: str,
    at: float,
    now: float,
    settings: Settings,
    *,
    gone: bool,
) -> Effects:
    """Blame a host of an attempt for an infrastructure fault at `at`. `gone`: nothing more can come from it."""
    effects = Effects()
    if gone:
        session.execute(
            update(instances).where(instances.c.attempt_id == attempt_id, instances.c.rank == rank).values(cleared=True)
        )
    live = load(session, attempt_id)
    if live is None:
        return effects
    host = live.hosts[rank].host
    failure = InstanceFailure(cause=FailureCause.NODE, message=message[:4096], at=at)
    if live.state in (AttemptState.PREPARING, AttemptState.RUNNING):
        end(session, live, EndReason.PEER_FAILED, now, settings, failure, host)
    elif live.state in (AttemptState.ENDING, AttemptState.ASSEMBLING) and (
        live.failure is None or failure.at < live.failure.at
    ):
        blame(session, live, failure, host)
    effects.wake.update(live.agent_ids)
    effects.add(advance(session, attempt_id, now, settings))
    return effects


def lose_node(session: Session, node_id: str, reason: str, last_seen: float, now: float, settings: Settings) -> Effects:
    """The node counts as lost: its slot is given to nobody until its agent reports it empty."""
    effects = end_pool_of_node(session, node_id, now, f"a node was lost: {reason}")
    count = changed(
        session,
        update(nodes)
        .where(nodes.c.id == node_id, nodes.c.state != NodeState.LOST.value)
        .values(state=NodeState.LOST.value, reason=reason, cluster_id=None),
    )
    if count:
        effects.planner.append(NodeGone(node_id))
        record(session, now, "node.lost", f"node/{node_id}", f"Node lost: {reason}")
    held = session.execute(
        select(instances.c.attempt_id, instances.c.rank).where(
            instances.c.node_id == node_id, instances.c.cleared.is_(False)
        )
    ).first()
    if held is not None:
        effects.add(
            fail_host(
                session,
                held.attempt_id,
                held.rank,
                f"the node was lost: {reason}",
                last_seen,
                now,
                settings,
                gone=True,
            )
        )
    return effects


def lose_silent_agents(session: Session, now: float, settings: Settings) -> Effects:
    """Every node of every agent whose lease has run out."""
    effects = Effects()
    silent = session.execute(
        select(nodes.c.id, agents.c.name, agents.c.last_seen_at)
        .join(agents, agents.c.id == nodes.c.agent_id)
        .where(agents.c.lease_expires_at <= now, nodes.c.state != NodeState.LOST.value)
        .order_by(nodes.c.id)
    ).all()
    for row in silent:
        reason = (
            f"agent {row.name} has been silent for {now - row.last_seen_at:.0f} s "
            f"(its lease is {settings.lease_seconds:g} s)"
        )
        effects.add(lose_node(session, row.id, reason, row.last_seen_at, now, settings))
    return effects
