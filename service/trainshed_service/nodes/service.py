"""The service over nodes: serves the agent protocol, carries out what follows from commits, watches deadlines.

Invariants:

* The rows are the truth. All that is kept in memory (versions, presence, credentials, what is missing) can be lost at
  any line: `start` brings every live attempt on from the rows.
* Follow-ups of a commit run in its order; one that fails is tried again until it succeeds.
* Of several processes on one database one leads (`replicas`): it alone schedules, watches deadlines, concludes attempts
  and takes jobs away. Each serves, and tells the others what it committed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import structlog
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from trainshed_service.clock import Clock
from trainshed_service.events import EventLog
from trainshed_service.identity import IdentityService
from trainshed_service.jobs.attempts import advance
from trainshed_service.jobs.conclusion import conclude
from trainshed_service.jobs.effects import Effects
from trainshed_service.jobs.service import JobService
from trainshed_service.jobs.states import AttemptState, JobState
from trainshed_service.logs import LogStore
from trainshed_service.metrics import MetricStore
from trainshed_service.nodes import assignments, deadlines
from trainshed_service.nodes.credentials import JobCredentials
from trainshed_service.nodes.draining import set_draining
from trainshed_service.nodes.enrollment import enroll, key_hash
from trainshed_service.nodes.errors import AgentError
from trainshed_service.nodes.live import agents_of, job_name, live_attempts
from trainshed_service.nodes.losing import fail_host
from trainshed_service.nodes.reports import take_report
from trainshed_service.nodes.versions import DesiredVersions
from trainshed_service.replicas import Group, Message
from trainshed_service.scheduling.applier import Scheduler
from trainshed_service.scheduling.placement import Placement
from trainshed_service.settings import Settings
from trainshed_service.store import Database
from trainshed_service.store.tables import agents, jobs
from trainshed_worker.protocol import (
    DesiredState,
    EnrollRequest,
    EnrollResponse,
    InstanceFailure,
    ObjectStoreAccess,
    ReportRequest,
    ReportResponse,
)

_log = structlog.get_logger(__name__)
MAX_WAIT_SECONDS = 60.0
_MISSING_SECONDS = 10.0
_RETRY_SECONDS = 1.0
_LOOK_PAUSE_SECONDS = 0.25
_BRING_ON_SECONDS = 15.0
"""Between looks at what another process, killed between its commit and its word, may have left undone."""


class NodeService:
    def __init__(
        self,
        *,
        database: Database,
        clock: Clock,
        settings: Settings,
        identity: IdentityService,
        events: EventLog,
        logs: LogStore,
        metrics: MetricStore,
        group: Group,
    ) -> None:
        self._group = group
        self._database = database
        self._clock = clock
        self._settings = settings
        self._identity = identity
        self._events = events
        self._logs = logs
        self._metrics = metrics
        self._versions = DesiredVersions(clock)
        self._credentials = JobCredentials(database, identity, clock, settings)
        self._keys: dict[str, str] = {}
        self._present: set[str] = set()
        self._missing: dict[tuple[str, int], float] = {}
        self._look_again = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._role: list[asyncio.Task[None]] = []
        self._has_others = False
        self._brought_on_at = 0.0
        self._jobs: JobService | None = None
        self.scheduler = Scheduler(
            database, clock, settings, lambda: set(self._present), self._placed, self.carry_out, self._grant
        )

    def attach(self, jobs_service: JobService) -> None:
        """The service over jobs, which takes deleted ones away when their slots are empty."""
        self._jobs = jobs_service

    # -- the agent protocol --------------------------------------------------------------------------------------

    async def enroll(self, token: str, request: EnrollRequest) -> EnrollResponse:
        """AgentError 401 where the enrollment token is wrong."""
        accepted = await self._database.read(lambda session: self._identity.check_enrollment_token(session, token))
        if not accepted:
            raise AgentError(401, "WrongToken", "The enrollment token is not this installation's.")
        now = self._clock.now()
        enrolled = await self._database.write(lambda session: enroll(session, request, now, self._settings))
        self._keys = {key: agent for key, agent in self._keys.items() if agent != enrolled.agent_id}
        self.carry_out(enrolled.effects)
        return EnrollResponse(
            agent_id=enrolled.agent_id,
            agent_key=enrolled.agent_key,
            node_ids=enrolled.node_ids,
            lease_seconds=self._settings.lease_seconds,
            ingest_url=self._settings.resolved_ingest_url,
        )

    async def authenticate(self, agent_key: str) -> str:
        """The agent whose key this is. AgentError 401 where it is nobody's (any more)."""
        hashed = key_hash(agent_key)
        agent_id = self._keys.get(hashed)
        if agent_id is None:
            agent_id = await self._database.read(
                lambda session: session.scalar(select(agents.c.id).where(agents.c.key_hash == hashed))
            )
            if agent_id is None:
                raise AgentError(401, "UnknownKey", "This agent key is not known; enroll again with the token.")
            self._keys[hashed] = agent_id
        return agent_id

    async def report(self, agent_id: str, request: ReportRequest) -> ReportResponse:
        """Take in a report. AgentError 403 for another agent's, 409 where a newer start took over."""
        if request.agent_id != agent_id:
            raise AgentError(403, "WrongAgent", "The key belongs to another agent than the report.")
        now = self._clock.now()
        taken = await self._database.write(lambda session: take_report(session, request, now, self._settings))
        if agent_id not in self._present:
            self._present.add(agent_id)
            self._group.tell(self._group.message(heard=(agent_id,)))
            if self._group.leads:
                await self.scheduler.agent_heard(agent_id)
            else:
                self.scheduler.renew()
        self.carry_out(taken.effects)
        await self._judge_missing(taken.missing, taken.held, now)
        return ReportResponse(
            lease_seconds=self._settings.lease_seconds, desired_version=self._versions.current(agent_id)
        )

    async def desired(self, agent_id: str, version: int, wait: float) -> DesiredState:
        """The desired state, as soon as its version is not `version`, at the latest after `wait` seconds."""
        seconds = min(max(wait, 0.0), MAX_WAIT_SECONDS)
        current = await self._versions.wait_for_other(agent_id, version, seconds)
        wanted, kept = await self._database.read(
            lambda session: (assignments.wanted_of(session, agent_id), assignments.kept_clusters(session, agent_id))
        )
        rendered = []
        for item in wanted:
            if item.state in (AttemptState.ENDED, AttemptState.CLEARED):
                access = self._credentials.none()
                self._credentials.forget(item.attempt.id)
            else:
                access = await self._credentials.get(item.attempt.id, item.attempt.request)
            rendered += assignments.render(item, access, self._credentials.gang_secret(item.attempt.id), self._settings)
        return DesiredState(version=current, assignments=rendered, kept_clusters=kept)

    # -- what administrators want -------------------------------------------------------------------------------

    async def set_draining(self, node_id: str, draining: bool, by: str) -> None:
        """Give the node no new job, or jobs again. ApiError 404 where there is none."""
        now = self._clock.now()
        agent_id, effects = await self._database.write(
            lambda session: set_draining(session, node_id, draining, now, by)
        )
        if agent_id not in self._present:
            effects.planner.clear()  # its nodes are told of as they stand when it is heard from
        self.carry_out(effects)

    # -- what follows from commits -------------------------------------------------------------------------------

    def carry_out(self, effects: Effects) -> None:
        """Do what follows from a committed change. Never blocks; what takes time goes on in tasks of its own."""
        bumped = self._versions.bump(effects.wake)
        self._events.published()
        tell = self._group.message(bumped=bumped, replan=bool(effects.planner))
        if self._group.leads:
            self.scheduler.submit(effects.planner)
            if effects.wake or effects.planner or effects.finish:
                self._look_again.set()
            self._do_as_leader(effects.finish, effects.remove)
        else:
            if effects.planner:
                self.scheduler.renew()
            tell = replace(tell, finish=tuple(effects.finish), remove=tuple(effects.remove))
        self._group.tell(tell)

    def _do_as_leader(self, finish: Sequence[str], remove: Sequence[int]) -> None:
        for attempt_id in dict.fromkeys(finish):
            self._spawn(self._conclude(attempt_id, None))
        for job_id in remove:
            self._spawn(self._remove(job_id))

    def _received(self, message: Message) -> None:
        """What another process has committed."""
        self._has_others = True
        self._versions.learn(message.bumped, message.known, message.first)
        fresh = set(message.heard) - self._present
        self._present |= fresh
        self._events.published()
        if message.replan or message.everything or fresh:
            self.scheduler.renew()
        if message.everything:
            self._versions.bump_all()
        if self._group.leads:
            if message.bumped or message.replan or message.finish or message.everything:
                self._look_again.set()
            self._do_as_leader(message.finish, message.remove)
            if message.everything:
                self._spawn(self._bring_on())
        if message.hello:
            known = {"known": self._versions.known, "first": self._versions.first}
            self._group.tell(self._group.message(heard=tuple(self._present), **known))

    async def start(self) -> None:
        """Once, before the first request is served."""
        await self._group.join(self._received, self._change_role)

    async def _change_role(self, leads: bool) -> None:
        await _end(self._role)
        if leads:
            await self._begin_to_lead()
            work = [self.scheduler.run(), self._watch()]
        else:
            work = [self.scheduler.follow(), self._renew()]
        self._role = [self._spawn(each) for each in work]

    async def _begin_to_lead(self) -> None:
        """Every live attempt goes on from where the rows say it is."""
        now = self._clock.now()
        outage = await self._database.write(lambda session: deadlines.extend_after_outage(session, now))
        live = await self._bring_on()
        if self._has_others:  # credentials that the last leader made are known to nobody: each agent gets new ones
            self._group.tell(self._group.message(bumped=self._versions.bump_all(), first=self._versions.first))
        _log.info("core.started", live_attempts=live, outage_seconds=round(outage, 1))

    async def _bring_on(self) -> int:
        """Do for every live attempt and every job to be deleted what a process that is gone may have left undone."""
        now = self._brought_on_at = self._clock.now()
        live = await self._database.read(live_attempts)
        for attempt_id, job, names in live:
            await self._logs.ensure_streams(job, names)
            effects = await self._database.write(
                lambda session, attempt_id=attempt_id: advance(session, attempt_id, now, self._settings)  # type: ignore[misc]
            )
            self.carry_out(effects)
        held = [attempt_id for attempt_id, _, _ in live]
        self.carry_out(Effects(wake=await self._database.read(lambda session: agents_of(session, held))))
        deleting = await self._database.read(
            lambda session: session.scalars(select(jobs.c.id).where(jobs.c.state == JobState.DELETING.value)).all()
        )
        for job_id in deleting:
            self._spawn(self._remove(job_id))
        return len(live)

    async def stop(self) -> None:
        """End the background work; the rows say where to go on, and another process may lead."""
        self._versions.close()
        await self._group.leave()
        await _end(list(self._tasks))

    def drain(self) -> None:
        """Answer every waiting poll now, since the process is about to end."""
        self._versions.close()

    @property
    def is_draining(self) -> bool:
        """The process is about to end: whoever holds a connection open ends it, the client comes back."""
        return self._versions.is_closed

    async def look_at_deadlines(self) -> float | None:
        """Do what is due; when to look again (epoch seconds)."""
        now = self._clock.now()

        def look(session: Session) -> deadlines.Due:
            deadlines.beat(session, now)
            return deadlines.look(session, now, self._settings)

        due = await self._database.write(look)
        self.carry_out(due.effects)
        for attempt_id, failure in due.overdue:
            await self._conclude(attempt_id, failure)
        await self._renew_credentials()
        if self._has_others and now - self._brought_on_at >= _BRING_ON_SECONDS:
            await self._bring_on()
        return due.next_at

    async def _renew_credentials(self) -> None:
        due = self._credentials.due()
        if due:
            self.carry_out(Effects(wake=await self._database.read(lambda session: agents_of(session, due))))

    async def _renew(self) -> None:
        """What a process that does not lead has to see to by time: the credentials that it gave."""
        while True:
            await asyncio.sleep(deadlines.HEARTBEAT_SECONDS)
            try:
                await self._renew_credentials()
            except SQLAlchemyError:
                _log.exception("nodes.credentials_not_renewed", retry_seconds=deadlines.HEARTBEAT_SECONDS)

    async def _watch(self) -> None:
        while True:
            self._look_again.clear()
            pause = deadlines.HEARTBEAT_SECONDS
            try:
                next_at = await self.look_at_deadlines()
                if next_at is not None:
                    pause = min(max(next_at - self._clock.now(), 0.05), pause)
            except SQLAlchemyError:
                _log.exception("nodes.deadlines_not_checked", retry_seconds=_RETRY_SECONDS)
                pause = _RETRY_SECONDS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._look_again.wait()
                    await asyncio.sleep(_LOOK_PAUSE_SECONDS)  # many changes at once: one look

    def _grant(self, session: Session, placement: Placement) -> ObjectStoreAccess:
        """A placed attempt's credentials are stored with it: its agents hear of it one commit earlier."""
        return self._credentials.issue(session, placement.attempt_id, placement.request)

    def _placed(self, placement: Placement, access: ObjectStoreAccess) -> None:
        """A gang was placed. Its agents hear of it at once; its log streams are there long before a line comes, and a
        line that comes earlier is sent again."""
        self._credentials.remember(placement.attempt_id, access)
        bumped = self._versions.bump(placement.agent_ids)
        self._events.published()
        self._group.tell(self._group.message(bumped=bumped, replan=True))
        self._spawn(self._make_streams(placement))

    async def _make_streams(self, placement: Placement) -> None:
        while True:
            try:
                await self._logs.ensure_streams(placement.job_name, placement.stream_names)
                return
            except SQLAlchemyError:
                _log.exception("nodes.streams_not_made", job=placement.job_name, retry_seconds=_RETRY_SECONDS)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _conclude(self, attempt_id: str, overdue: InstanceFailure | None) -> None:
        while True:
            try:
                name = await self._database.read(lambda session: job_name(session, attempt_id))
                if name is None:
                    return
                final = [
                    {"MetricName": metric.name, "Value": metric.value, "Timestamp": metric.at}
                    for metric in await self._metrics.final(name)
                ]
                now = self._clock.now()
                effects = await self._database.write(
                    lambda session: conclude(
                        session,
                        attempt_id,
                        now,  # noqa: B023
                        self._settings,
                        self._identity.revoke_job_keys,
                        final,  # noqa: B023
                        overdue,
                    )
                )
                break
            except SQLAlchemyError:
                _log.exception("nodes.attempt_not_concluded", attempt=attempt_id, retry_seconds=_RETRY_SECONDS)
                await asyncio.sleep(_RETRY_SECONDS)
        self._credentials.forget(attempt_id)
        self.carry_out(effects)

    async def _remove(self, job_id: int) -> None:
        assert self._jobs is not None
        await self._jobs.remove(job_id)

    async def _judge_missing(self, missing: set[tuple[str, int]], held: set[tuple[str, int]], now: float) -> None:
        """A slot that is reported empty though its agent had accepted an assignment: a late message, or a loss.

        Only when it is said again some seconds later, with nothing else between, it counts as lost.
        """
        for key in held:
            self._missing.pop(key, None)
        for key in missing:
            first = self._missing.setdefault(key, now)
            if now - first < _MISSING_SECONDS:
                continue
            del self._missing[key]
            attempt_id, rank = key
            effects = await self._database.write(
                lambda session, attempt_id=attempt_id, rank=rank, first=first: fail_host(  # type: ignore[misc]
                    session,
                    attempt_id,
                    rank,
                    "its agent no longer knows of it: the node lost its state",
                    first,
                    now,
                    self._settings,
                    gone=True,
                )
            )
            self.carry_out(effects)

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("nodes.background_work_failed", exc_info=task.exception())


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
