"""Draining a node: it takes no new job, its running job goes on, its warm pool ends; and the way back.

Invariants: a node's state stays what its agent has proven; draining is a mark beside it. The planner knows a draining
node as one of no instance type (`scheduling.events.offered`), so nothing is placed on it, and a placement that was
decided before the mark was committed is refused by it.
"""

from __future__ import annotations

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from trainshed_service.events import record
from trainshed_service.jobs.effects import Effects
from trainshed_service.jobs.states import NodeState
from trainshed_service.pools.life import end_pool_of_node
from trainshed_service.scheduling.events import NodeFree, NodeTaken, offered
from trainshed_service.store.tables import changed, nodes
from trainshed_service.wire.errors import ApiError


def set_draining(session: Session, node_id: str, draining: bool, now: float, by: str) -> tuple[str, Effects]:
    """The agent of the node and what follows; nothing where it is so already. ApiError 404 where there is none.

    `by`: who wants it, for the event.
    """
    effects = Effects()
    row = session.execute(select(nodes.c.agent_id).where(nodes.c.id == node_id)).first()
    if row is None:
        raise ApiError("NotFound", f"There is no node {node_id}; `trainshed nodes` lists them.", 404)
    mark = nodes.c.draining_since
    count = changed(
        session,
        update(nodes)
        .where(nodes.c.id == node_id, mark.is_(None) if draining else mark.is_not(None))
        .values(draining_since=now if draining else None),
    )
    if count != 1:
        return row.agent_id, effects
    if draining:
        effects.add(end_pool_of_node(session, node_id, now, f"a node is being drained by {by}"))
    node = session.execute(
        select(nodes.c.state, nodes.c.instance_types, nodes.c.draining_since).where(nodes.c.id == node_id)
    ).one()
    types = offered(node.instance_types, node.draining_since)
    if node.state == NodeState.FREE:
        effects.planner.append(NodeFree(node_id, types))
    elif node.state in (NodeState.LEASED, NodeState.WARM):
        effects.planner.append(NodeTaken(node_id, types))
    kind, text = ("node.draining", "takes no new job") if draining else ("node.undrained", "takes jobs again")
    record(session, now, kind, f"node/{node_id}", f"Node {text}, as {by} wants it", {"by": by})
    return row.agent_id, effects
