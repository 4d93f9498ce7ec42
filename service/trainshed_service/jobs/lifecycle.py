"""The one gate through which jobs and attempts change state.

Invariants:

* A move is made only where `states` has a row for it, and only by an update guarded with the state it starts from: no
  row changed means that somebody else was faster, and nothing else of the move is written.
* Every move bumps `version` and `modified_at`, closes the open secondary status transition, appends the next one and
  records an event, all in the caller's transaction.
* Nothing here talks to anything but the session that it was given.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import bindparam, select, update
from sqlalchemy.orm import Session

from trainshed_service.events import record
from trainshed_service.jobs.states import (
    ATTEMPT_TRANSITIONS,
    AWS_STATUS,
    JOB_TRANSITIONS,
    TERMINAL,
    AttemptState,
    Cause,
    JobState,
)
from trainshed_service.store.prepared import Prepared, add_row, set_where
from trainshed_service.store.tables import attempts, job_phases, job_transitions, jobs

_END = Prepared(
    select(
        jobs.c.arn,
        jobs.c.user_id,
        jobs.c.created_at,
        jobs.c.training_started_at,
        jobs.c.training_ended_at,
        jobs.c.modified_at,
        jobs.c.instance_count,
        jobs.c.request["ResourceConfig"],
    ).where(jobs.c.id == bindparam("id"))
)
_LAST = Prepared(
    select(job_transitions.c.seq, job_transitions.c.status, job_transitions.c.ended_at)
    .where(job_transitions.c.job_id == bindparam("job_id"))
    .order_by(job_transitions.c.seq.desc())
    .limit(1)
)
_NEW_MESSAGE = Prepared(
    update(jobs)
    .where(jobs.c.id == bindparam("job"), jobs.c.state == bindparam("at"), jobs.c.status_message != bindparam("text"))
    .values(status_message=bindparam("text"), modified_at=bindparam("now"), version=jobs.c.version + 1)
)


class IllegalMove(RuntimeError):
    """The transition table has no such row: a fault in the caller."""


def first_transition(session: Session, job_id: int, now: float) -> None:
    """The transition that every job begins with; written in the transaction that creates the job."""
    row = AWS_STATUS[JobState.QUEUED]
    add_row(
        session,
        job_transitions,
        {"job_id": job_id, "seq": 0, "status": row.secondary, "message": row.message, "started_at": now},
    )


def move_job(
    session: Session,
    job_id: int,
    name: str,
    state: JobState,
    cause: Cause,
    now: float,
    *,
    secondary: str | None = None,
    message: str | None = None,
    **values: Any,
) -> JobState | None:
    """Move a job from `state` for `cause`; None where it is no longer in that state.

    `values` are further columns to set in the same update; `secondary` and `message` replace the words of the table.
    """
    target = JOB_TRANSITIONS.get((state, cause))
    if target is None:
        raise IllegalMove(f"a job can't move from {state} for {cause}")
    words = AWS_STATUS[target]
    secondary = secondary or words.secondary
    message = message or words.message
    count = set_where(
        session,
        jobs,
        {"id": job_id, "state": state.value},
        {
            "state": target.value,
            "status": words.status,
            "secondary_status": secondary,
            "status_message": message,
            "modified_at": now,
            **values,
        },
        counting="version",
    )
    if count == 0:
        return None
    _append_transition(session, job_id, secondary, message, now, final=target in TERMINAL)
    data: dict[str, Any] = {"state": target.value, "status": words.status, "secondaryStatus": secondary}
    if values.get("failure_reason"):
        data["failureReason"] = values["failure_reason"]
    if target in TERMINAL:
        data |= _told_of_end(session, job_id)
    record(session, now, f"job.{target.value}", f"job/{name}", message, data)
    return target


def _told_of_end(session: Session, job_id: int) -> dict[str, Any]:
    """What the event of a job's end says besides: enough to tell of it when the job was deleted meanwhile."""
    (row,) = _END.run(session, {"id": job_id})
    arn, user_id, created_at, started_at, ended_at, modified_at, instance_count, resources = row
    return {
        "jobId": job_id,
        "jobArn": arn,
        "userId": user_id,
        "instanceType": (resources or {}).get("InstanceType"),
        "instanceCount": instance_count,
        "keepAliveSeconds": (resources or {}).get("KeepAlivePeriodInSeconds") or 0,
        "wallSeconds": round(max(0.0, (ended_at or modified_at) - (started_at or created_at)), 3),
    }


def set_message(session: Session, job_id: int, state: JobState, message: str, now: float) -> bool:
    """Say something new about a job that stays where it is, e.g. why it waits. False: no change was needed."""
    count = _NEW_MESSAGE.change(session, {"job": job_id, "at": state.value, "text": message, "now": now})
    if count == 0:
        return False
    last = _last_transition(session, job_id)
    if last is not None:
        set_where(session, job_transitions, {"job_id": job_id, "seq": last.seq}, {"message": message})
    return True


def move_attempt(session: Session, attempt_id: str, state: AttemptState, target: AttemptState, **values: Any) -> bool:
    """Move an attempt; False where it is no longer in `state`."""
    if target not in ATTEMPT_TRANSITIONS[state]:
        raise IllegalMove(f"an attempt can't move from {state} to {target}")
    guard = {"id": attempt_id, "state": state.value}
    return set_where(session, attempts, guard, {"state": target.value, **values}) == 1


def write_phase(
    session: Session, job_id: int, attempt: int, host: str, phase: str, start: float, end: float | None
) -> None:
    """Put one span into the phase ledger; a span that is there gets its end. `phase`: the agent's words, cut to fit."""
    phase = phase[: job_phases.c.phase.type.length]  # type: ignore[attr-defined]
    key = {"job_id": job_id, "attempt": attempt, "host": host, "phase": phase}
    span = {"started_at": start, "ended_at": end}
    if set_where(session, job_phases, key, span) == 0:
        add_row(session, job_phases, {**key, **span})


def _last_transition(session: Session, job_id: int) -> Any:
    return next(iter(_LAST.find(session, {"job_id": job_id})), None)


def _append_transition(session: Session, job_id: int, secondary: str, message: str, now: float, *, final: bool) -> None:
    """A move within one secondary status (queued → placed) changes only the words of the open transition."""
    last = _last_transition(session, job_id)
    seq = 0
    if last is not None:
        seq = last.seq + 1
        here = {"job_id": job_id, "seq": last.seq}
        if last.status == secondary and last.ended_at is None and not final:
            set_where(session, job_transitions, here, {"message": message})
            return
        if last.ended_at is None:
            set_where(session, job_transitions, here, {"ended_at": now})
    add_row(
        session,
        job_transitions,
        {
            "job_id": job_id,
            "seq": seq,
            "status": secondary,
            "message": message,
            "started_at": now,
            "ended_at": now if final else None,
        },
    )
