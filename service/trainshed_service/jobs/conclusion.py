"""How an attempt ends: the verdict on the job, a retry, or the success. One transaction with the end of the attempt.

Invariants: a terminal status is written only here (and for jobs that never got a node in `stopping`), after the last
line and the artifacts are stored or their deadline has passed; a job succeeds at most once, and only where every host
said that its processes had ended; its keys are revoked in the same transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from trainshed_service.jobs.attempts import STOP_REASONS, Live, advance, load
from trainshed_service.jobs.causes import Verdict, shorten, verdict
from trainshed_service.jobs.effects import Effects
from trainshed_service.jobs.gang import StepKind, next_step
from trainshed_service.jobs.keeping import keep_cluster
from trainshed_service.jobs.lifecycle import move_attempt, move_job
from trainshed_service.jobs.spec import max_runtime_seconds, retries_allowed
from trainshed_service.jobs.states import AttemptState, Cause, JobState
from trainshed_service.settings import Settings
from trainshed_service.store.tables import attempts
from trainshed_worker.protocol import EndReason, FailureCause, InstanceFailure, Phase

RevokeKeys = Callable[[Session, str], Any]
CLEAR_SECONDS = 300.0
_BEFORE_UPLOAD = (JobState.PLACED, JobState.DOWNLOADING, JobState.TRAINING)


def conclude(
    session: Session,
    attempt_id: str,
    now: float,
    settings: Settings,
    revoke_keys: RevokeKeys,
    final_metrics: list[dict[str, Any]],
    overdue: InstanceFailure | None = None,
) -> Effects:
    """End the attempt and with it (or not, where it is tried again) the job.

    `overdue` says what did not happen in time, where a deadline and not a report brings the end.
    """
    effects = Effects()
    live = load(session, attempt_id)
    if live is None or live.state in (AttemptState.ENDED, AttemptState.CLEARED):
        return effects
    if overdue is None:
        step = next_step(live.gang())
        if step is None or step.kind is not StepKind.FINISH:
            return effects
    failure, host = live.failure, live.outcome.get("host")
    if overdue is not None and failure is None:
        failure, host = overdue, None
    if failure is None and live.end_reason is None and not all(view.reached(Phase.EXITED) for view in live.hosts):
        silent = next(view.host for view in live.hosts if not view.reached(Phase.EXITED))
        failure, host = _no_end(silent, now), silent
    outcome = {**live.outcome, "failure": failure.model_dump(mode="json") if failure else None, "host": host}
    moved = move_attempt(
        session,
        live.id,
        live.state,
        AttemptState.ENDED,
        ended_at=now,
        outcome=outcome,
        deadline_at=now + CLEAR_SECONDS + settings.stop_grace_seconds,
    )
    if not moved:
        return effects
    revoke_keys(session, live.id)
    effects.wake.update(live.agent_ids)
    _judge(session, live, failure, host or "the cluster", now, settings, final_metrics)
    effects.planner += keep_cluster(session, live, failure, now, settings)
    effects.add(advance(session, attempt_id, now, settings))
    return effects


def _no_end(host: str, now: float) -> InstanceFailure:
    return InstanceFailure(
        cause=FailureCause.NODE, message=f"{host} is gone and never said how its processes ended", at=now
    )


def _judge(
    session: Session,
    live: Live,
    failure: InstanceFailure | None,
    host: str,
    now: float,
    settings: Settings,
    final_metrics: list[dict[str, Any]],
) -> None:
    values: dict[str, Any] = {
        "training_ended_at": now if live.training_started_at is not None else None,
        "final_metrics": final_metrics,
        "pending_failure": None,
    }
    state = live.job_state
    if state is JobState.STOPPING or live.end_reason in STOP_REASONS:
        _stopped(session, live, failure, host, now, values)
        return
    if failure is None:
        state = _show_upload(session, live, state, now)
        move_job(session, live.job_id, live.job_name, state, Cause.ARTIFACTS_STORED, now, **values)
        return
    found = verdict(failure, host)
    if found.retryable and _may_retry(session, live, settings):
        move_job(
            session,
            live.job_id,
            live.job_name,
            state,
            Cause.RETRY,
            now,
            message=shorten(f"Launched instance was unhealthy, replacing it! {host}: {failure.message}"),
            pending_failure=None,
        )
        return
    if found.cause is Cause.ALGORITHM_ERROR:
        state = _show_upload(session, live, state, now)
    _fail(session, live, state, found, now, values)


def _fail(session: Session, live: Live, state: JobState, found: Verdict, now: float, values: dict[str, Any]) -> None:
    move_job(session, live.job_id, live.job_name, state, found.cause, now, failure_reason=found.reason, **values)


def _stopped(
    session: Session, live: Live, failure: InstanceFailure | None, host: str, now: float, values: dict[str, Any]
) -> None:
    """A stop ends as Stopped whatever the processes made of it; only lost artifacts make it Failed."""
    state = live.job_state
    if failure is not None and failure.cause is FailureCause.OUTPUT:
        _fail(session, live, state, verdict(failure, host), now, values)
        return
    secondary, message = None, None
    if live.end_reason == EndReason.MAX_RUNTIME:
        secondary = "MaxRuntimeExceeded"
        elapsed = now - live.running_at if live.running_at is not None else 0.0
        message = (
            f"Training job stopped: it reached its maximum runtime of {max_runtime_seconds(live.request):g} s "
            f"({elapsed:.0f} s after its processes started, upload included)"
        )
    cause = {JobState.STOPPING: Cause.STOP_FINISHED, JobState.UPLOADING: Cause.MAX_RUNTIME}[state]
    if failure is not None and failure.cause is FailureCause.NODE and state is JobState.STOPPING:
        cause = Cause.NODE_FAULT
        message = message or shorten(f"Training job stopped; {host} was lost meanwhile: {failure.message}")
    move_job(session, live.job_id, live.job_name, state, cause, now, secondary=secondary, message=message, **values)


def _show_upload(session: Session, live: Live, state: JobState, now: float) -> JobState:
    """Walk through the rows before Uploading, so that every history has the same shape."""
    for cause in (Cause.GANG_RUNNING, Cause.PROCESSES_ENDED):
        if state is JobState.UPLOADING:
            break
        if cause is Cause.GANG_RUNNING and state is JobState.TRAINING:
            continue
        state = move_job(session, live.job_id, live.job_name, state, cause, now) or state
    return state


def _may_retry(session: Session, live: Live, settings: Settings) -> bool:
    """A start that nodes rejected is tried again a few times; a job that ran only where its RetryStrategy says so."""
    ran = attempts.c.running_at.is_not(None)
    mine = attempts.c.job_id == live.job_id
    if live.running_at is None:
        rejected = session.scalar(select(func.count()).select_from(attempts).where(mine, ~ran)) or 0
        return rejected < settings.max_dispatch_attempts
    used = session.scalar(select(func.count()).select_from(attempts).where(mine, ran)) or 0
    return used <= retries_allowed(live.request)
