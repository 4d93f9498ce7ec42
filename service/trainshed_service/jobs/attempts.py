"""Carries out what `gang.next_step` says: reads an attempt, takes its steps as guarded moves, says what follows.

Invariants:

* `advance` may run at any time and any number of times on a live attempt, also after a crash between two of its calls:
  what was done is not done again.
* Everything outside of the database that a step needs (waking agents, final metrics, the planner) is only *named* in
  `Effects`, and done by the caller after the commit; `recover` of the service finds what a crash left undone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from trainshed_service.jobs.effects import Effects
from trainshed_service.jobs.gang import GangView, HostView, Step, StepKind, next_step
from trainshed_service.jobs.lifecycle import move_attempt, move_job, set_message
from trainshed_service.jobs.spec import max_runtime_seconds
from trainshed_service.jobs.states import AttemptState, Cause, ClusterState, JobState
from trainshed_service.pools.life import find, open_pool
from trainshed_service.scheduling.loading import load_queued
from trainshed_service.settings import Settings
from trainshed_service.store.prepared import Prepared, set_where
from trainshed_service.store.tables import agents, attempts, clusters, instances, jobs, nodes
from trainshed_worker.protocol import AssignmentReport, EndReason, InstanceFailure, Phase

_MAX_STEPS = 32
_ATTEMPT = (
    select(
        attempts,
        jobs.c.name.label("job_name"),
        jobs.c.state.label("job_state"),
        jobs.c.request,
        jobs.c.training_started_at,
    )
    .join(jobs, jobs.c.id == attempts.c.job_id)
    .where(attempts.c.id == bindparam("attempt"))
)
_LOCKED, _UNLOCKED = Prepared(_ATTEMPT.with_for_update()), Prepared(_ATTEMPT)
_MEMBERS = Prepared(
    select(instances.c.rank, instances.c.host, instances.c.report, instances.c.cleared, nodes.c.agent_id)
    .join(nodes, nodes.c.id == instances.c.node_id)
    .where(instances.c.attempt_id == bindparam("attempt"))
    .order_by(instances.c.rank)
)
_RUNS = Prepared(
    select(attempts.c.running_at, attempts.c.ended_at).where(
        attempts.c.job_id == bindparam("job"), attempts.c.running_at.is_not(None), attempts.c.ended_at.is_not(None)
    )
)
STOP_REASONS = frozenset({EndReason.STOP_REQUESTED, EndReason.MAX_RUNTIME})


@dataclass(frozen=True)
class Live:
    """An attempt with its job and hosts, as one transaction sees them."""

    id: str
    state: AttemptState
    number: int
    cluster_id: str
    created_at: float
    running_at: float | None
    deadline_at: float
    outcome: dict[str, Any]
    job_id: int
    job_name: str
    job_state: JobState
    request: dict[str, Any]
    training_started_at: float | None
    hosts: tuple[HostView, ...]
    agent_ids: tuple[str, ...]

    @property
    def failure(self) -> InstanceFailure | None:
        stored = self.outcome.get("failure")
        return InstanceFailure.model_validate(stored) if stored else None

    @property
    def end_reason(self) -> str | None:
        return self.outcome.get("reason")

    def gang(self) -> GangView:
        shown = set()
        if self.job_state is not JobState.PLACED:
            shown.add(StepKind.DOWNLOADING)
        if self.job_state not in (JobState.PLACED, JobState.DOWNLOADING):
            shown.add(StepKind.TRAINING)
        if self.running_at is None or self.job_state not in (
            JobState.PLACED,
            JobState.DOWNLOADING,
            JobState.TRAINING,
        ):
            shown.add(StepKind.UPLOADING)
        return GangView(
            state=self.state,
            hosts=self.hosts,
            ran=self.running_at is not None,
            end_reason=self.end_reason if self.end_reason in STOP_REASONS else None,
            failure=self.failure,
            failed_host=self.outcome.get("host"),
            shown=frozenset(shown),
        )


def load(session: Session, attempt_id: str, *, lock: bool = True) -> Live | None:
    """The attempt, or None where it is unknown. On PostgreSQL its row stays locked until the transaction ends."""
    found = (_LOCKED if lock else _UNLOCKED).find(session, {"attempt": attempt_id})
    if not found:
        return None
    row = found[0]
    members = _MEMBERS.find(session, {"attempt": attempt_id})
    return Live(
        id=row.id,
        state=AttemptState(row.state),
        number=row.number,
        cluster_id=row.cluster_id,
        created_at=row.created_at,
        running_at=row.running_at,
        deadline_at=row.deadline_at,
        outcome=dict(row.outcome or {}),
        job_id=row.job_id,
        job_name=row.job_name,
        job_state=JobState(row.job_state),
        request=row.request,
        training_started_at=row.training_started_at,
        hosts=tuple(_host(member) for member in members),
        agent_ids=tuple(member.agent_id for member in members),
    )


def _host(row: Any) -> HostView:
    report = AssignmentReport.model_validate(row.report) if row.report else None
    return HostView(
        rank=row.rank,
        host=row.host,
        phase=report.phase if report else None,
        failure=report.failure if report else None,
        end_reason=report.end_reason if report else None,
        gone=bool(row.cleared),
        parts=tuple(report.part_uris) if report else (),
    )


def advance(session: Session, attempt_id: str, now: float, settings: Settings) -> Effects:
    """Take every step that the stored reports allow."""
    effects = Effects()
    for _ in range(_MAX_STEPS):
        live = load(session, attempt_id)
        step = next_step(live.gang()) if live else None
        if live is None or step is None:
            return effects
        if step.kind is StepKind.FINISH:
            effects.finish.append(attempt_id)
            return effects
        if not _take(session, live, step, now, settings, effects):
            return effects
    raise AssertionError(f"attempt {attempt_id} makes steps without an end")


def _take(session: Session, live: Live, step: Step, now: float, settings: Settings, effects: Effects) -> bool:
    """Take one step; False where somebody else was faster (then the rest is theirs)."""
    match step.kind:
        case StepKind.DOWNLOADING:
            return _show(session, live, Cause.DOWNLOAD_STARTED, now)
        case StepKind.RUN:
            if not all(host.finished for host in live.hosts):  # else their next order is to clear
                effects.wake.update(live.agent_ids)
            budget = max_runtime_seconds(live.request) - seconds_already_run(session, live.job_id)
            return move_attempt(
                session,
                live.id,
                live.state,
                AttemptState.RUNNING,
                running_at=now,
                deadline_at=now + max(budget, 0.0),
            )
        case StepKind.TRAINING:
            return _show(session, live, Cause.GANG_RUNNING, now)
        case StepKind.END:
            effects.wake.update(live.agent_ids)
            if step.failure is not None:
                return end(session, live, EndReason.PEER_FAILED, now, settings, step.failure, step.host)
            return end(session, live, EndReason(step.end_reason or EndReason.MAX_RUNTIME), now, settings)
        case StepKind.BLAME:
            assert step.failure is not None
            return blame(session, live, step.failure, step.host)
        case StepKind.UPLOADING:
            if live.job_state in (JobState.PLACED, JobState.DOWNLOADING):
                return _show(session, live, Cause.GANG_RUNNING, now)
            set_where(session, attempts, {"id": live.id}, {"deadline_at": now + settings.upload_deadline_seconds})
            return _show(session, live, Cause.PROCESSES_ENDED, now)
        case StepKind.ASSEMBLE:
            if not live.hosts[0].finished:  # alone, it did so without an order
                effects.wake.update(live.agent_ids)
            outcome = {**live.outcome, "parts": list(step.parts)}
            return move_attempt(
                session,
                live.id,
                live.state,
                AttemptState.ASSEMBLING,
                outcome=outcome,
                deadline_at=now + settings.upload_deadline_seconds,
            )
        case StepKind.CLEARED:
            return _cleared(session, live, now, effects)
    raise AssertionError(f"no such step: {step.kind}")


def end(
    session: Session,
    live: Live,
    reason: EndReason,
    now: float,
    settings: Settings,
    failure: InstanceFailure | None = None,
    host: str | None = None,
) -> bool:
    """Make all hosts stop. A stop by request or time-out shows at once; a failure when the processes have ended."""
    outcome = {**live.outcome, "reason": reason.value}
    if failure is not None:
        outcome |= {"failure": failure.model_dump(mode="json"), "host": host}
    if not move_attempt(
        session,
        live.id,
        live.state,
        AttemptState.ENDING,
        outcome=outcome,
        deadline_at=now + settings.stop_grace_seconds + settings.upload_deadline_seconds,
    ):
        return False
    if failure is not None:
        _keep_pending(session, live.job_id, failure, host)
    if reason is EndReason.MAX_RUNTIME and live.job_state in (
        JobState.PLACED,
        JobState.DOWNLOADING,
        JobState.TRAINING,
    ):
        limit = max_runtime_seconds(live.request)
        move_job(
            session,
            live.job_id,
            live.job_name,
            live.job_state,
            Cause.MAX_RUNTIME,
            now,
            stop_reason=EndReason.MAX_RUNTIME.value,
            message=f"Stopping the training job: its maximum runtime of {limit:g} s has passed",
        )
    return True


def blame(session: Session, live: Live, failure: InstanceFailure, host: str | None) -> bool:
    """Make `failure` the attempt's pending one."""
    outcome = {**live.outcome, "failure": failure.model_dump(mode="json"), "host": host}
    count = set_where(session, attempts, {"id": live.id, "state": live.state.value}, {"outcome": outcome})
    _keep_pending(session, live.job_id, failure, host)
    return count == 1


def seconds_already_run(session: Session, job_id: int) -> float:
    """What earlier attempts used of the job's maximum runtime."""
    rows = _RUNS.find(session, {"job": job_id})
    return float(sum(row.ended_at - row.running_at for row in rows))


def agents_of(session: Session, attempt_id: str) -> set[str]:
    return set(
        session.scalars(
            select(agents.c.id)
            .join(nodes, nodes.c.agent_id == agents.c.id)
            .join(instances, instances.c.node_id == nodes.c.id)
            .where(instances.c.attempt_id == attempt_id)
        )
    )


def _keep_pending(session: Session, job_id: int, failure: InstanceFailure, host: str | None) -> None:
    pending = {"host": host, **failure.model_dump(mode="json")}
    set_where(session, jobs, {"id": job_id}, {"pending_failure": pending}, counting="version")


def _show(session: Session, live: Live, cause: Cause, now: float) -> bool:
    values: dict[str, Any] = {}
    if live.training_started_at is None and cause in (Cause.DOWNLOAD_STARTED, Cause.GANG_RUNNING):
        values["training_started_at"] = now
    return move_job(session, live.job_id, live.job_name, live.job_state, cause, now, **values) is not None


def _cleared(session: Session, live: Live, now: float, effects: Effects) -> bool:
    if not move_attempt(session, live.id, live.state, AttemptState.CLEARED):
        return False
    kept = find(session, live.cluster_id)
    if kept is not None:
        effects.add(open_pool(session, kept, now))
    set_where(
        session,
        clusters,
        {"id": live.cluster_id, "state": ClusterState.HELD.value},
        {"state": ClusterState.GONE.value, "released_at": now},
    )
    if live.job_state is JobState.QUEUED:
        set_message(session, live.job_id, JobState.QUEUED, "Launching requested ML instances", now)
        again = load_queued(session, live.job_id)
        assert again is not None
        effects.planner.append(again)
    elif live.job_state is JobState.DELETING:
        effects.remove.append(live.job_id)
    return True


def phase_of(value: str | None) -> Phase | None:
    return Phase(value) if value else None
