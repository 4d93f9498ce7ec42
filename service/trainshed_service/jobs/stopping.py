"""A user's stop: at once where no instance works for the job, else by way of Stopping and its grace."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainshed_service.jobs.attempts import advance, end, load
from trainshed_service.jobs.effects import Effects
from trainshed_service.jobs.lifecycle import move_job
from trainshed_service.jobs.reach import EVERYBODY, Reach
from trainshed_service.jobs.states import LIVE_ATTEMPT, AttemptState, Cause, JobState
from trainshed_service.scheduling.events import JobGone
from trainshed_service.settings import Settings
from trainshed_service.store.tables import attempts, jobs
from trainshed_service.wire.errors import not_found, validation_error
from trainshed_worker.protocol import EndReason


def request_stop(session: Session, name: str, now: float, settings: Settings, reach: Reach = EVERYBODY) -> Effects:
    """Stop the job. A job that is already stopping is left as it is; ValidationException for one that has ended."""
    job = session.execute(
        select(jobs.c.id, jobs.c.state, jobs.c.status, jobs.c.user_id).where(jobs.c.name == name).with_for_update()
    ).first()
    if job is None:
        raise not_found()
    reach.require(job.user_id)
    state = JobState(job.state)
    effects = Effects()
    if state is JobState.STOPPING:
        return effects
    if state in (JobState.COMPLETED, JobState.FAILED, JobState.STOPPED, JobState.DELETING):
        raise validation_error(f"The request was rejected because the training job is in status {job.status}.")
    if state is JobState.QUEUED:
        move_job(
            session,
            job.id,
            name,
            state,
            Cause.STOP_REQUESTED,
            now,
            stop_reason=EndReason.STOP_REQUESTED.value,
        )
        effects.planner.append(JobGone(job.id))
        return effects
    attempt_id = session.scalar(
        select(attempts.c.id).where(
            attempts.c.job_id == job.id, attempts.c.state.in_([state.value for state in LIVE_ATTEMPT])
        )
    )
    live = load(session, attempt_id) if attempt_id is not None else None
    if live is None:
        raise AssertionError(f"job {name} is {state} without a live attempt")
    if live.state in (AttemptState.PREPARING, AttemptState.RUNNING):
        end(session, live, EndReason.STOP_REQUESTED, now, settings)
    move_job(session, job.id, name, state, Cause.STOP_REQUESTED, now, stop_reason=EndReason.STOP_REQUESTED.value)
    effects.wake.update(live.agent_ids)
    effects.add(advance(session, live.id, now, settings))
    return effects
