"""Nodes: every slot in its state, by machine; one node with its history; draining.

Invariant: what changes by itself on every report of an agent (when it was last heard from) is shown only where it is
late, so that a page that nothing happened to is not sent again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from trainshed_service.dashboard import words
from trainshed_service.dashboard.live import Live
from trainshed_service.dashboard.security import Csrf, read_form
from trainshed_service.dashboard.visitor import Visitor
from trainshed_service.jobs.reach import Reach
from trainshed_service.jobs.states import JobState, NodeState
from trainshed_service.pools.explain import list_pools
from trainshed_service.rest import read_nodes
from trainshed_service.rest.auth import Caller
from trainshed_service.services import Services
from trainshed_service.store.tables import attempts, instances, jobs
from trainshed_service.wire.errors import ApiError

LATE_SECONDS = 15.0
MAX_EVENTS, MAX_JOBS = 100, 20
STATES: dict[str, words.Shown] = {
    NodeState.FREE: words.Shown("free", "good", "Empty, ready for a job"),
    NodeState.LEASED: words.Shown("in use", "run", "A job runs on it, or is started or cleared"),
    NodeState.WARM: words.Shown("warm", "work", "Kept after a job for the next one that matches"),
    NodeState.QUARANTINED: words.Shown("quarantined", "bad", "Not proven empty: given to nobody"),
    NodeState.LOST: words.Shown("lost", "bad", "Its agent is silent"),
}
DRAINING = words.Shown("draining", "wait", "Takes no new job")


@dataclass(frozen=True)
class Slot:
    """A node; `job` is what runs on it (null where it is out of reach), `pool` the warm pool that it belongs to."""

    node: dict[str, Any]
    shown: words.Shown
    job: words.Shown | None
    pool: dict[str, Any] | None

    @property
    def draining(self) -> bool:
        return self.node["drainingSince"] is not None


@dataclass
class Machine:
    """The slots of one agent. `late`: when it was last heard from, where that is long ago."""

    first: dict[str, Any]
    late: float | None
    slots: list[Slot] = field(default_factory=list)


class NodesPages:
    def __init__(self, services: Services, live: Live, csrf: Csrf) -> None:
        self._services = services
        self._live = live
        self._csrf = csrf

    async def page(self, request: Request, visitor: Visitor) -> Response:
        """GET /nodes."""

        async def build(visitor: Visitor) -> dict[str, Any]:
            slots = await self._slots(visitor)
            counts = Counter(slot.node["state"] for slot in slots)
            draining = sum(slot.draining for slot in slots)
            return {
                "machines": self._machines(slots),
                "counts": [(shown, counts[state]) for state, shown in STATES.items() if counts[state]],
                "draining": (DRAINING, draining),
                "total": len(slots),
                "is_admin": visitor.principal.is_admin,
            }

        return await self._live.answer(request, visitor, "nodes.html", build)

    async def one(self, request: Request, visitor: Visitor) -> Response:
        """GET /nodes/<id>: a node, what happened to it, and draining it."""
        node_id = request.path_params["id"]

        async def build(visitor: Visitor) -> dict[str, Any]:
            found = [slot for slot in await self._slots(visitor) if slot.node["id"] == node_id]
            if not found:
                raise ApiError("NotFound", "There is no such node.", 404)
            reach = Caller(visitor.principal, self._services, b"").reach
            ran = await self._services.database.read(lambda session: _read_ran(session, node_id, reach))
            events = await self._services.events.read_last(f"node/{node_id}", MAX_EVENTS)
            return {
                "machine": self._machines(found)[0],
                "slot": found[0],
                "draining": DRAINING,
                "events": events,
                "ran": ran,
                "is_admin": visitor.principal.is_admin,
            }

        return await self._live.answer(request, visitor, "node.html", build)

    async def drain(self, request: Request, visitor: Visitor) -> Response:
        """POST /nodes/<id>/drain."""
        return await self._set_draining(request, visitor, True)

    async def undrain(self, request: Request, visitor: Visitor) -> Response:
        """POST /nodes/<id>/undrain."""
        return await self._set_draining(request, visitor, False)

    async def _set_draining(self, request: Request, visitor: Visitor, draining: bool) -> Response:
        node_id = request.path_params["id"]
        self._csrf.check(request, visitor.token, await read_form(request))
        Caller(visitor.principal, self._services, b"").require_admin("drain nodes")
        await self._services.nodes.set_draining(node_id, draining, visitor.principal.name)
        return RedirectResponse(f"/nodes/{node_id}", 303)

    async def _slots(self, visitor: Visitor) -> list[Slot]:
        caller = Caller(visitor.principal, self._services, b"")
        caller.require("trainshed:ListNodes")
        return await self._services.database.read(lambda session: _read_slots(session, caller.reach))

    def _machines(self, slots: list[Slot]) -> list[Machine]:
        now = self._services.clock.now()
        machines = []
        for _, group in groupby(slots, key=lambda slot: slot.node["agentId"]):
            own = list(group)
            first = own[0].node
            late = first["lastSeen"] if now - first["lastSeen"] > LATE_SECONDS else None
            machines.append(Machine(first, late, own))
        return machines


def _read_ran(session: Session, node_id: str, reach: Reach) -> list[dict[str, Any]]:
    """The newest jobs that ran on the node, among those within reach."""
    rows = session.execute(
        select(jobs.c.name, jobs.c.state, instances.c.host, attempts.c.created_at, attempts.c.ended_at)
        .join(attempts, attempts.c.id == instances.c.attempt_id)
        .join(jobs, jobs.c.id == attempts.c.job_id)
        .where(instances.c.node_id == node_id, *reach.conditions())
        .order_by(attempts.c.created_at.desc())
        .limit(MAX_JOBS)
    )
    return [{**row._mapping, "state": words.STATES[JobState(row.state)]} for row in rows]


def _read_slots(session: Session, reach: Reach) -> list[Slot]:
    """In the order of their machines."""
    nodes = read_nodes(session, reach)
    by_node = {node_id: pool for pool in list_pools(session, reach) for node_id in pool["nodes"]}
    names = sorted({node["job"] for node in nodes if node["job"]})
    states: dict[str, str] = dict(
        session.execute(select(jobs.c.name, jobs.c.state).where(jobs.c.name.in_(names))).tuples().all()
    )
    return [
        Slot(
            node,
            STATES[node["state"]],
            words.STATES[JobState(states[node["job"]])] if node["job"] in states else None,
            by_node.get(node["id"]) if node["state"] == NodeState.WARM else None,
        )
        for node in nodes
    ]
