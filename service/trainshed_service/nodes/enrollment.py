"""Enrolls an agent: by one name always one agent, with one node row per slot; its key is stored as a hash only.

Invariants: enrolling again (a restart) keeps agent, nodes and what they hold, gives a new key and makes the older
start's messages refused; a slot that is no longer offered is lost, not forgotten.
"""

from __future__ import annotations

import hashlib
import secrets
import uuid
from dataclasses import dataclass

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from trainshed_service.events import record
from trainshed_service.jobs.effects import Effects
from trainshed_service.jobs.states import NodeState
from trainshed_service.nodes.losing import lose_node
from trainshed_service.scheduling.events import NodeTaken, offered
from trainshed_service.settings import Settings
from trainshed_service.store.tables import agents, nodes
from trainshed_worker.protocol import EnrollRequest


@dataclass(frozen=True)
class Enrolled:
    """The key is in the clear here and nowhere else."""

    agent_id: str
    agent_key: str
    node_ids: list[str]
    effects: Effects


def key_hash(agent_key: str) -> str:
    return hashlib.sha256(agent_key.encode("utf-8", "surrogateescape")).hexdigest()


def enroll(session: Session, request: EnrollRequest, now: float, settings: Settings) -> Enrolled:
    """Make or renew the agent of this name. A new node is quarantined until its slot is reported empty."""
    agent_key = "tsa_" + secrets.token_urlsafe(32)
    values = {
        "key_hash": key_hash(agent_key),
        "boot_id": request.boot_id,
        "facts": request.facts.model_dump(mode="json"),
        "last_seen_at": now,
        "lease_expires_at": now + settings.lease_seconds,
    }
    agent_id = session.scalar(select(agents.c.id).where(agents.c.name == request.agent_name).with_for_update())
    if agent_id is None:
        agent_id = uuid.uuid4().hex
        session.execute(insert(agents).values(id=agent_id, name=request.agent_name, **values))
        record(session, now, "agent.enrolled", f"agent/{agent_id}", f"Agent {request.agent_name} joined")
    else:
        session.execute(update(agents).where(agents.c.id == agent_id).values(**values))
        record(session, now, "agent.restarted", f"agent/{agent_id}", f"Agent {request.agent_name} enrolled again")
    effects = Effects()
    known = {
        row.slot: row
        for row in session.execute(
            select(nodes.c.id, nodes.c.slot, nodes.c.state, nodes.c.instance_types, nodes.c.draining_since).where(
                nodes.c.agent_id == agent_id
            )
        )
    }
    node_ids: list[str] = []
    for slot in request.slots:
        row = known.pop(slot.index, None)
        if row is None:
            node_id = uuid.uuid4().hex
            session.execute(
                insert(nodes).values(
                    id=node_id,
                    agent_id=agent_id,
                    slot=slot.index,
                    instance_types=slot.instance_types,
                    state=NodeState.QUARANTINED.value,
                    reason="waits for its first report",
                )
            )
        else:
            node_id = row.id
            if row.instance_types != slot.instance_types:
                session.execute(update(nodes).where(nodes.c.id == node_id).values(instance_types=slot.instance_types))
                if row.state in (NodeState.LEASED, NodeState.WARM):
                    effects.planner.append(NodeTaken(node_id, offered(slot.instance_types, row.draining_since)))
        node_ids.append(node_id)
    for row in known.values():
        effects.add(lose_node(session, row.id, "its agent no longer offers this slot", now, now, settings))
    return Enrolled(agent_id, agent_key, node_ids, effects)
