"""The serial applier: feeds the planner events, carries out what it decides, and rebuilds its state where it was wrong.

Invariants:

* Decisions are committed one after the other, each in one transaction with guarded updates: attempt, cluster, instances
  and node leases appear together or not at all. A decision that no longer holds changes nothing, and the planner's
  state is rebuilt from the database before the next one.
* It acts on events (job created, node free, pool available …) and at the times that the planner names; between them it
  does nothing. Events that came meanwhile are taken together.
* All that is kept in memory can be lost at any line: rows are the truth. Usage is stored now and then and before a
  rebuild; a crash forgets at most `_USAGE_SECONDS` of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from time import monotonic
from typing import Any

import structlog
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session

from trainshed_service.clock import Clock
from trainshed_service.jobs.effects import Effects
from trainshed_service.jobs.lifecycle import move_job, set_message
from trainshed_service.jobs.states import Cause, ClusterState, JobState
from trainshed_service.pools.life import end_pool, find
from trainshed_service.pools.match import match_key
from trainshed_service.scheduling.events import Decision, GiveUp, JobQueued, Place, PlannerEvent, Reclaim, Tick, Wait
from trainshed_service.scheduling.history import History
from trainshed_service.scheduling.loading import load_agent, load_events, store_usage
from trainshed_service.scheduling.placement import Placement, StaleDecision, commit_place
from trainshed_service.scheduling.planner import next_wake, restore, step_all
from trainshed_service.scheduling.preview import Preview, Projection, explain, in_order, place, preview, with_start
from trainshed_service.scheduling.recording import Recorder, snapshot
from trainshed_service.scheduling.state import Policy, State
from trainshed_service.settings import Settings
from trainshed_service.store import Database

_log = structlog.get_logger(__name__)
_RETRY_SECONDS = 1.0
_MOST_AT_ONCE = 1000
_TELL_SECONDS = 1.0
_USAGE_SECONDS = 10.0
_HISTORY_SECONDS = 60.0
_PROJECTION_SECONDS = 1.0
_FOLLOW_SECONDS = 0.25
_BETWEEN_LOADS = 4
"""Of the time that loading everything took, until it is done again for changes made elsewhere."""
_PREVIEWED = 2**62
"""The id of a job that does not exist: behind all others of its user."""


class Scheduler:
    """`present` names the agents that were heard from since this process started: only their nodes are offered.

    `with_placement` does in the transaction of a placement what belongs to it; `placed` and `carry_out` do what follows
    from commits, and never block.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        settings: Settings,
        present: Callable[[], set[str]],
        placed: Callable[[Placement, Any], None],
        carry_out: Callable[[Effects], None],
        with_placement: Callable[[Session, Placement], Any],
    ) -> None:
        self._database = database
        self._clock = clock
        self._settings = settings
        self._present = present
        self._placed = placed
        self._carry_out = carry_out
        self._with_placement = with_placement
        self._events: asyncio.Queue[PlannerEvent] = asyncio.Queue()
        after = settings.reclaim_warm_after_seconds
        self._policy = Policy(settings.usage_half_life_seconds, after if after >= 0 else None)
        self._state = State(self._policy)
        self._recorder = Recorder(settings.home, settings.scheduler_inputs_megabytes * 1_000_000, self._policy)
        self._history = History()
        self._history_at = float("-inf")
        self._untold: dict[int, str] = {}
        self._told_at = float("-inf")
        self._usage_due: float | None = None
        self._projection: Projection | None = None
        self._is_stale = False
        self._renew_at = 0.0

    # -- what others ask -------------------------------------------------------------------------------------------

    def submit(self, events: Iterable[PlannerEvent]) -> None:
        """Tell of committed changes, in the order of their commits. Never blocks."""
        for event in events:
            self._events.put_nowait(event)

    def renew(self) -> None:
        """Rows have changed without events here (another process of the service changed them): load them anew soon."""
        self._is_stale = True
        self._events.put_nowait(Tick())

    def queued(
        self,
        job_id: int,
        name: str,
        request: dict[str, Any],
        *,
        user_id: int | None,
        priority: int,
        queued_at: float,
    ) -> JobQueued:
        """The event of a job that waits."""
        return JobQueued.of(
            job_id,
            name,
            request,
            user_id=user_id,
            priority=priority,
            queued_at=queued_at,
            expected_seconds=self._history.expect(user_id, request),
            pool_key=match_key(request),
        )

    async def agent_heard(self, agent_id: str) -> None:
        """An agent was heard from for the first time since this process started: its nodes may be used."""
        present = self._present()
        self.submit(
            await self._database.read(
                lambda session: load_agent(
                    session, agent_id, present, self._history.expect, self._settings.pool_coming_seconds
                )
            )
        )

    def explain(self, job_id: int) -> str | None:
        """Why a queued job waits, in words, with its projected start; None where it does not wait."""
        words = explain(self._state, job_id)
        return with_start(words, self.projected_start(job_id)) if words is not None else None

    def queue_position(self, job_id: int) -> int | None:
        """How many jobs are ahead; None where the job is not in the queue."""
        return place(self._state, job_id)

    def projected_start(self, job_id: int) -> float | None:
        """When the job is going to start by what is known now (at most a second old); None: that cannot be said."""
        if job_id not in self._state.queue:
            return None
        now = self._clock.now()
        if self._projection is None or not 0 <= now - self._projection.made_at < _PROJECTION_SECONDS:
            self._projection = Projection(self._state, now)
        return self._projection.starts.get(job_id)

    def waiting(self, user_id: int | None = None) -> int:
        """How many jobs wait; of one user where given."""
        return self._state.queue.count(user_id)

    def ends(self, job_id: int) -> dict[str, float | None]:
        """When a job that holds nodes is going to end, by jobs like it, and at the latest, by its limit."""
        held = self._state.fleet.jobs.get(job_id)
        if held is None:
            return {"expectedEnd": None, "latestEnd": None}
        return {"expectedEnd": held.expected_end, "latestEnd": held.ends_at}

    def queue(self, most: int, user_id: int | None = None, skip: int = 0) -> list[dict[str, Any]]:
        """Jobs that wait, in order (of one user where given), behind the first `skip`, each with its place and why it
        waits."""
        rows = []
        for waiting in in_order(self._state, skip + most, user_id)[skip:]:
            job = waiting.job
            rows.append(
                {
                    "name": job.name,
                    "instances": " and ".join(f"{count} × {name}" for name, count in job.needs),
                    "priority": job.priority,
                    "queuePosition": self.queue_position(job.job_id),
                    "waitingReason": explain(self._state, job.job_id),
                    "projectedStart": self.projected_start(job.job_id),
                    "queuedAt": job.queued_at,
                }
            )
        return rows

    def preview(self, request: dict[str, Any], user_id: int | None = None, priority: int = 0) -> Preview:
        """What a job with this request would get if it came now, or why it would wait."""
        now = self._clock.now()
        job = self.queued(_PREVIEWED, "preview", request, user_id=user_id, priority=priority, queued_at=now)
        return preview(self._state, job, now)

    # -- the loop --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Decide, until cancelled. A database that fails is tried again: nothing is lost, the rows are the truth."""
        self._state = State(self._policy)
        self._usage_due = None
        try:
            await self._run()
        finally:
            await asyncio.to_thread(self._recorder.close)

    async def follow(self) -> None:
        """While another process decides, until cancelled: know what it knows, to answer from. At most a fifth of the
        time goes into that."""
        while True:
            try:
                self._is_stale = False
                self._state, _ = restore(await self._load(), self._clock.now(), self._policy)
            except SQLAlchemyError:
                _log.exception("scheduler.database_failed", retry_seconds=_RETRY_SECONDS)
                self._renew_at = monotonic() + _RETRY_SECONDS
                self._is_stale = True
            await asyncio.sleep(max(self._renew_at - monotonic(), _FOLLOW_SECONDS))
            while not self._is_stale:
                await self._events.get()

    async def _run(self) -> None:
        rebuild = True
        while True:
            try:
                if rebuild or (self._is_stale and monotonic() >= self._renew_at):
                    rebuild = not await self._rebuild()
                    continue
                events = await self._next_events()
                now = self._clock.now()
                self._state, decisions = step_all(self._state, events, now)
                self._recorder.stepped(now, events, decisions)
                if not await self._apply(decisions) or (
                    self._recorder.wants_snapshot and not await self._apply(self._restore(snapshot(self._state)))
                ):
                    rebuild = True
                await self._keep_up()
            except SQLAlchemyError:
                _log.exception("scheduler.database_failed", retry_seconds=_RETRY_SECONDS)
                await asyncio.sleep(_RETRY_SECONDS)
                rebuild = True

    async def _next_events(self) -> list[PlannerEvent]:
        """What came, as soon as anything did; a tick when it is time."""
        if self._events.empty():
            pause = self._pause()
            try:
                async with asyncio.timeout(pause):
                    first = await self._events.get()
            except TimeoutError:
                return [Tick()]
            events = [first]
        else:
            events = []
        while len(events) < _MOST_AT_ONCE and not self._events.empty():
            events.append(self._events.get_nowait())
        return events

    def _pause(self) -> float | None:
        times = [next_wake(self._state), self._usage_due, self._told_at + _TELL_SECONDS if self._untold else None]
        pauses = [time - self._clock.now() for time in times if time is not None]
        if self._is_stale:
            pauses.append(self._renew_at - monotonic())
        return max(min(pauses), 0.001) if pauses else None

    async def _rebuild(self) -> bool:
        """Load everything anew and decide on it; False where a decision did not hold."""
        await self._store_usage()
        self._is_stale = False
        return await self._apply(self._restore(await self._load()))

    async def _load(self) -> list[PlannerEvent]:
        began = monotonic()
        present = self._present()

        def load(session: Session) -> list[PlannerEvent]:
            self._history.load(session)
            return load_events(session, present, self._history.expect, self._settings.pool_coming_seconds)

        loaded = await self._database.read(load)
        self._history_at = self._clock.now()
        self._renew_at = monotonic() + _BETWEEN_LOADS * (monotonic() - began)
        return loaded

    def _restore(self, events: list[PlannerEvent]) -> list[Decision]:
        now = self._clock.now()
        self._state, decisions = restore(events, now, self._policy)
        self._recorder.restored(now, events, decisions)
        return decisions

    async def _keep_up(self) -> None:
        """What is due besides decisions: reasons for those who read rows, usage, how long jobs took."""
        now = self._clock.now()
        if self._untold and now >= self._told_at + _TELL_SECONDS:
            told, self._untold, self._told_at = self._untold, {}, now
            await self._database.write(partial(_tell, told, now))
        if self._usage_due is not None and now >= self._usage_due:
            await self._store_usage()
        if now >= self._history_at + _HISTORY_SECONDS:
            self._history_at = now
            await self._database.read(self._history.load)

    async def _store_usage(self) -> None:
        shares, at = self._state.shares, max(self._state.now, self._clock.now())
        self._usage_due = None
        used = {user: shares.used(user, at) for user in shares.accounts if user is not None}
        if used:
            await self._database.write(lambda session: store_usage(session, used, at))

    # -- decisions -------------------------------------------------------------------------------------------------

    async def _apply(self, decisions: list[Decision]) -> bool:
        """Carry out each decision; False where one did not hold any more."""
        for decision in decisions:
            now = self._clock.now()
            match decision:
                case Place():
                    if not await self._commit_place(decision, now):
                        return False
                case Wait():
                    self._untold[decision.job_id] = decision.reason
                case Reclaim():
                    await self._commit_reclaim(decision, now)
                case GiveUp():
                    await self._database.write(partial(_commit_give_up, decision, now))
                    self._carry_out(Effects())
        return True

    async def _commit_place(self, decision: Place, now: float) -> bool:
        self._untold.pop(decision.job.job_id, None)

        def commit(session: Session) -> tuple[Placement, Any]:
            placement = commit_place(session, decision, now, self._settings)
            return placement, self._with_placement(session, placement)

        try:
            placement, extra = await self._database.write(commit)
        except (StaleDecision, IntegrityError) as error:
            _log.info("scheduler.stale_decision", job=decision.job.name, why=str(error))
            return False
        if self._usage_due is None:
            self._usage_due = now + _USAGE_SECONDS
        self._placed(placement, extra)
        return True

    async def _commit_reclaim(self, decision: Reclaim, now: float) -> None:
        """A pool that somebody took or ended meanwhile is left alone: its own event tells the planner."""
        effects = await self._database.write(partial(_end_pool, decision, now))
        self._carry_out(effects)


def _tell(told: dict[int, str], now: float, session: Session) -> None:
    for job_id, reason in told.items():
        set_message(session, job_id, JobState.QUEUED, reason, now)


def _end_pool(decision: Reclaim, now: float, session: Session) -> Effects:
    kept = find(session, decision.cluster_id)
    if kept is None or kept.state is not ClusterState.WARM:
        return Effects()
    return end_pool(session, kept, now, decision.reason)


def _commit_give_up(decision: GiveUp, now: float, session: Session) -> None:
    move_job(
        session,
        decision.job_id,
        decision.name,
        JobState.QUEUED,
        Cause.CAPACITY,
        now,
        failure_reason=decision.reason,
    )
