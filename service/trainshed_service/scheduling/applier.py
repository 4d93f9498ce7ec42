"""The serial applier: feeds the planner events, commits what it decides, and rebuilds its state where it was wrong.

Invariants:

* Decisions are committed one after the other, each in one transaction with guarded updates: attempt, cluster, instances
  and node leases appear together or not at all. A decision that no longer holds changes nothing, and the planner's
  state is rebuilt from the database before the next one.
* It acts on events only (job created, node free, node gone); between events it does nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import structlog
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session

from trainshed_service.clock import Clock
from trainshed_service.jobs.lifecycle import set_message
from trainshed_service.jobs.states import LIVE_ATTEMPT, JobState, NodeState
from trainshed_service.scheduling.events import (
    Decision,
    JobQueued,
    NodeFree,
    NodeTaken,
    Place,
    PlannerEvent,
    Wait,
)
from trainshed_service.scheduling.placement import Placement, StaleDecision, avoided_nodes, commit_place
from trainshed_service.scheduling.planner import State, explain, restore, step
from trainshed_service.settings import Settings
from trainshed_service.store import Database
from trainshed_service.store.tables import attempts, jobs, nodes

_log = structlog.get_logger(__name__)
_RETRY_SECONDS = 1.0


class Scheduler:
    """`present` names the agents that were heard from since this process started: only their nodes are offered."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        settings: Settings,
        present: Callable[[], set[str]],
        placed: Callable[[Placement], Awaitable[None]],
    ) -> None:
        self._database = database
        self._clock = clock
        self._settings = settings
        self._present = present
        self._placed = placed
        self._events: asyncio.Queue[PlannerEvent | None] = asyncio.Queue()
        self._state = State()

    def submit(self, events: Iterable[PlannerEvent]) -> None:
        """Tell of committed changes, in the order of their commits. Never blocks."""
        for event in events:
            self._events.put_nowait(event)

    def explain(self, job_id: int) -> str | None:
        """Why a queued job waits, in words; None where it does not wait."""
        return explain(self._state, job_id)

    def queue_position(self, job_id: int) -> int | None:
        """How many jobs are ahead; None where the job is not in the queue."""
        return self._state.queue.position(job_id) if job_id in self._state.queue else None

    def preview(self, request: dict[str, Any]) -> tuple[tuple[str, ...] | None, str | None]:
        """What a job with this request would get if it came now: its nodes by rank, or why it would wait."""
        job = JobQueued.of(self._state.queue.last_id + 1, "preview", request)
        state, decisions = step(self._state, job, self._clock.now())
        for decision in decisions:
            if isinstance(decision, Place) and decision.job is job:
                return decision.nodes, None
        return None, explain(state, job.job_id)

    async def run(self) -> None:
        """Until cancelled. A database that fails is tried again: nothing is lost, since the rows are the truth."""
        rebuild = True
        while True:
            try:
                if rebuild:
                    await self._rebuild()
                    rebuild = False
                event = await self._events.get()
                if event is None:
                    continue
                self._state, decisions = step(self._state, event, self._clock.now())
                rebuild = not await self._apply(decisions)
            except SQLAlchemyError:
                _log.exception("scheduler.database_failed", retry_seconds=_RETRY_SECONDS)
                await asyncio.sleep(_RETRY_SECONDS)
                rebuild = True

    async def _rebuild(self) -> None:
        """Load the queue and the nodes anew and decide on them."""
        present = self._present()
        loaded = await self._database.read(lambda session: load_events(session, present))
        self._state, decisions = restore(loaded, self._clock.now())
        if not await self._apply(decisions):
            self._events.put_nowait(None)
            await self._rebuild()

    async def _apply(self, decisions: list[Decision]) -> bool:
        """Commit each decision; False where one did not hold any more."""
        now = self._clock.now()
        for decision in decisions:
            if isinstance(decision, Place):
                place = decision
                try:
                    placement = await self._database.write(
                        lambda session, place=place: commit_place(session, place, now, self._settings)  # type: ignore[misc]
                    )
                except (StaleDecision, IntegrityError) as error:
                    _log.info("scheduler.stale_decision", job=place.job.name, why=str(error))
                    return False
                await self._placed(placement)
            elif isinstance(decision, Wait):
                wait = decision
                await self._database.write(
                    lambda session, wait=wait: set_message(  # type: ignore[misc]
                        session, wait.job_id, JobState.QUEUED, wait.reason, now
                    )
                )
        return True


def load_events(session: Session, present: set[str]) -> list[PlannerEvent]:
    """The database as events: nodes of present agents, then the queue in order. Jobs whose last attempt is not yet
    cleared are not in it; they come when it is."""
    events: list[PlannerEvent] = []
    for row in session.execute(select(nodes.c.id, nodes.c.agent_id, nodes.c.instance_types, nodes.c.state)):
        if row.agent_id not in present:
            continue
        if row.state == NodeState.FREE:
            events.append(NodeFree(row.id, frozenset(row.instance_types)))
        elif row.state in (NodeState.LEASED, NodeState.WARM):
            events.append(NodeTaken(row.id, frozenset(row.instance_types)))
    live = select(attempts.c.job_id).where(attempts.c.state.in_([state.value for state in LIVE_ATTEMPT]))
    queued = session.execute(
        select(jobs.c.id, jobs.c.name, jobs.c.request, jobs.c.attempts)
        .where(jobs.c.state == JobState.QUEUED.value, jobs.c.id.not_in(live))
        .order_by(jobs.c.id)
    )
    for row in queued:
        avoid = avoided_nodes(session, row.id) if row.attempts else frozenset()
        events.append(JobQueued.of(row.id, row.name, row.request, avoid))
    return events
