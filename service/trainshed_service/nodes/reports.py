"""Takes in what an agent observed: one transaction per report message.

Invariants:

* A report changes an instance only where id, attempt and epoch are those of what the node holds and its revision is
  newer, so late, doubled and reordered messages change nothing.
* A node becomes free (or warm, where its cluster is kept) only when its slot is reported empty and no live instance is
  on it. What an agent still holds of
  an older epoch keeps a lost node out of use until it is cleared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import bindparam, select, update
from sqlalchemy.orm import Session

from trainshed_service.events import record
from trainshed_service.jobs.attempts import advance
from trainshed_service.jobs.effects import Effects
from trainshed_service.jobs.lifecycle import write_phase
from trainshed_service.jobs.states import AttemptState, NodeState
from trainshed_service.nodes.errors import AgentError
from trainshed_service.nodes.losing import fail_host
from trainshed_service.pools.life import end_pool_of_node, find
from trainshed_service.scheduling.events import NodeFree, NodeGone, NodeTaken, offered
from trainshed_service.settings import Settings
from trainshed_service.store.prepared import Prepared, set_where
from trainshed_service.store.tables import agents, attempts, clusters, instances, nodes
from trainshed_worker.protocol import AssignmentReport, Phase, ReportRequest, SlotReport, SlotState

_BOOT = Prepared(select(agents.c.boot_id).where(agents.c.id == bindparam("agent")))
_NODES = Prepared(
    select(
        nodes.c.id,
        nodes.c.state,
        nodes.c.reason,
        nodes.c.instance_types,
        nodes.c.cluster_id,
        nodes.c.draining_since,
    ).where(nodes.c.agent_id == bindparam("agent"))
)
_HELD = Prepared(
    select(
        instances.c.id,
        instances.c.node_id,
        instances.c.attempt_id,
        instances.c.rank,
        instances.c.host,
        instances.c.phase,
        instances.c.revision,
        attempts.c.state.label("attempt_state"),
        attempts.c.job_id,
        attempts.c.number,
        clusters.c.epoch,
    )
    .join(attempts, attempts.c.id == instances.c.attempt_id)
    .join(clusters, clusters.c.id == attempts.c.cluster_id)
    .join(nodes, nodes.c.id == instances.c.node_id)
    .where(nodes.c.agent_id == bindparam("agent"), instances.c.cleared.is_(False))
)
_HELD_BY = Prepared(
    select(instances.c.id).where(instances.c.node_id == bindparam("node"), instances.c.cleared.is_(False))
)
_REPORT = Prepared(select(instances.c.report).where(instances.c.id == bindparam("instance")))
_NEWER = Prepared(
    update(instances)
    .where(instances.c.id == bindparam("instance"), instances.c.revision < bindparam("newer"))
    .values(phase=bindparam("to_phase"), revision=bindparam("newer"), report=bindparam("to_report"))
)
_AGENTS_OF = Prepared(
    select(nodes.c.agent_id)
    .join(instances, instances.c.node_id == nodes.c.id)
    .where(instances.c.attempt_id == bindparam("attempt"))
)


@dataclass
class Taken:
    """What came of a message. `missing`: instances whose slot is said to be empty though they were accepted."""

    effects: Effects = field(default_factory=Effects)
    missing: set[tuple[str, int]] = field(default_factory=set)
    held: set[tuple[str, int]] = field(default_factory=set)


def take_report(session: Session, request: ReportRequest, now: float, settings: Settings) -> Taken:
    """AgentError 409 where a newer start of the agent took over."""
    boot = _BOOT.run(session, {"agent": request.agent_id})
    if boot != [(request.boot_id,)]:
        raise AgentError(409, "BootReplaced", "A newer start of this agent has enrolled; this one must stop.")
    seen = {"last_seen_at": now, "lease_expires_at": now + settings.lease_seconds}
    set_where(session, agents, {"id": request.agent_id}, seen)
    taken = Taken()
    rows = {row.id: row for row in _NODES.find(session, {"agent": request.agent_id})}
    held = _held(session, request.agent_id)
    touched: list[str] = []
    for slot in request.slots:
        node = rows.get(slot.node_id)
        if node is None:
            continue  # withdrawn by a newer enrollment
        instance = held.get(slot.node_id)
        if instance is not None and _take_slot(session, slot, instance, now, settings, taken):
            touched.append(instance.attempt_id)
        if instance is None or instance.attempt_id in touched:
            holds = bool(_HELD_BY.run(session, {"node": slot.node_id}))
        else:
            holds = instance is not None
        _settle_node(session, slot, node, holds, now, taken.effects)
    for attempt_id in dict.fromkeys(touched):
        taken.effects.add(advance(session, attempt_id, now, settings))
    return taken


def _held(session: Session, agent_id: str) -> dict[str, Any]:
    """What each node of the agent holds, by node id."""
    return {row.node_id: row for row in _HELD.find(session, {"agent": agent_id})}


def _take_slot(session: Session, slot: SlotReport, instance: Any, now: float, settings: Settings, taken: Taken) -> bool:
    """Take in what is said of the live instance of this slot; True where something changed."""
    report = slot.assignment
    key = (instance.attempt_id, instance.rank)
    ended = instance.attempt_state == AttemptState.ENDED
    if report is None:
        if slot.state is SlotState.HELD:
            return False
        if ended:
            return _clear(session, instance)
        if slot.state is SlotState.QUARANTINED:
            reason = f"its slot was quarantined: {slot.reason or 'no reason given'}"
            taken.effects.add(fail_host(session, *key, reason, now, now, settings, gone=True))
            return True
        if instance.phase is not None:
            taken.missing.add(key)
        return False
    if (report.id, report.attempt_id, report.epoch) != (instance.id, instance.attempt_id, instance.epoch):
        return False  # of another life of this slot: late, or about to be cleared by the agent
    taken.held.add(key)
    changed_something = False
    if report.revision > instance.revision:
        _store(session, report, instance, now, settings, taken)
        changed_something = True
    if report.phase is Phase.CLEARED or slot.state is not SlotState.HELD:
        if ended:
            return _clear(session, instance) or changed_something
        if changed_something:
            what = "quarantined its slot" if slot.state is SlotState.QUARANTINED else "gave it up"
            reason = f"the node {what} before the job had ended: {slot.reason or report.message or 'no reason given'}"
            at = report.failure.at if report.failure else now
            taken.effects.add(fail_host(session, *key, reason, at, now, settings, gone=True))
    return changed_something


def _store(
    session: Session, report: AssignmentReport, instance: Any, now: float, settings: Settings, taken: Taken
) -> None:
    old = next((stored for (stored,) in _REPORT.run(session, {"instance": instance.id})), None) or {}
    count = _NEWER.change(
        session,
        {
            "instance": instance.id,
            "newer": report.revision,
            "to_phase": report.phase.value,
            "to_report": report.model_dump(mode="json"),
        },
    )
    if count == 0:
        return
    known = {(span["name"], span["start"], span["end"]) for span in old.get("spans") or []}
    for span in report.spans:
        if (span.name, span.start, span.end) not in known:
            write_phase(session, instance.job_id, instance.number, instance.host, span.name, span.start, span.end)
    if report.address != old.get("address"):
        taken.effects.wake.update(agent for (agent,) in _AGENTS_OF.run(session, {"attempt": instance.attempt_id}))
    if instance.attempt_state == AttemptState.PREPARING:
        # A start that makes progress has not failed, however much data it has to fetch.
        set_where(
            session,
            attempts,
            {"id": instance.attempt_id, "state": AttemptState.PREPARING.value},
            {"deadline_at": now + settings.dispatch_deadline_seconds},
        )


def _clear(session: Session, instance: Any) -> bool:
    return set_where(session, instances, {"id": instance.id, "cleared": False}, {"cleared": True}) == 1


def _settle_node(session: Session, slot: SlotReport, node: Any, holds: bool, now: float, effects: Effects) -> None:
    """Bring the node's state to what the report proves."""
    types = offered(node.instance_types, node.draining_since)
    cleared = slot.assignment is not None and slot.assignment.phase is Phase.CLEARED
    if slot.state is SlotState.QUARANTINED:
        if holds:
            return  # the attempt decides first
        target, reason = NodeState.QUARANTINED, slot.reason or "quarantined by its agent"
    elif holds:
        target, reason = NodeState.LEASED, None
    elif slot.state is SlotState.EMPTY or cleared:
        kept = node.cluster_id is not None and find(session, node.cluster_id) is not None
        target, reason = NodeState.WARM if kept else NodeState.FREE, None
    elif node.state == NodeState.FREE:
        return  # proven empty before: this message is a late one
    else:
        target = NodeState(node.state)
        reason = "still holds what an earlier attempt left; its agent is to clear it"
        if target is NodeState.LEASED:
            return  # cleared in our books, not yet on the node: it stays taken until it is empty
    if node.state == target and node.reason == reason:
        return
    if node.state == NodeState.WARM and target in (NodeState.QUARANTINED, NodeState.LOST):
        effects.add(end_pool_of_node(session, node.id, now, f"a node was {target.value}: {reason}"))
    values: dict[str, Any] = {"state": target.value, "reason": reason}
    if target not in (NodeState.LEASED, NodeState.WARM):
        values["cluster_id"] = None
    set_where(session, nodes, {"id": node.id}, values)
    if node.state == target:
        return
    record(session, now, f"node.{target.value}", f"node/{node.id}", reason or f"Node is {target.value}")
    if target is NodeState.FREE:
        effects.planner.append(NodeFree(node.id, types))
    elif target in (NodeState.LEASED, NodeState.WARM):
        effects.planner.append(NodeTaken(node.id, types))
    else:
        effects.planner.append(NodeGone(node.id))
