"""What this system knows of a job beyond AWS's members: for REST, the command line and the dashboard."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainshed_service.identity.users import shown_name
from trainshed_service.jobs.reach import EVERYBODY, Reach
from trainshed_service.jobs.states import TERMINAL, JobState
from trainshed_service.providers import is_stand_in, known_type
from trainshed_service.scheduling.placement import log_stream_epoch, stream_name
from trainshed_service.store.tables import agents, attempts, instances, job_phases, jobs, nodes, users
from trainshed_service.wire.errors import not_found


def read_extended(session: Session, name: str, reach: Reach = EVERYBODY) -> dict[str, Any]:
    """State, message, notices, attempts with their hosts and streams, and the phase ledger. Times: epoch seconds."""
    job = session.execute(
        select(
            jobs.c.id,
            jobs.c.state,
            jobs.c.status_message,
            jobs.c.stop_reason,
            jobs.c.notices,
            jobs.c.pending_failure,
            jobs.c.version,
            jobs.c.user_id,
            users.c.name.label("user"),
        )
        .outerjoin(users, users.c.id == jobs.c.user_id)
        .where(jobs.c.name == name)
    ).first()
    if job is None:
        raise not_found()
    reach.require(job.user_id)
    tries, notices, stand_in = _attempts(session, job.id, name)
    return {
        "id": job.id,
        "User": None if job.user is None else shown_name(job.user),
        "State": job.state,
        "Terminal": JobState(job.state) in TERMINAL,
        "StatusMessage": job.status_message,
        "StopReason": job.stop_reason,
        "PendingFailure": job.pending_failure,
        "Notices": list(dict.fromkeys([*job.notices, *notices])),
        "StandIn": stand_in,
        "Attempts": tries,
        "LogStreamNames": [host["LogStreamName"] for attempt in tries for host in attempt["Hosts"]],
        "Phases": [
            {
                "Attempt": row.attempt,
                "Host": row.host,
                "Phase": row.phase,
                "StartTime": row.started_at,
                "EndTime": row.ended_at,
            }
            for row in session.execute(
                select(job_phases).where(job_phases.c.job_id == job.id).order_by(job_phases.c.started_at)
            )
        ],
        "Version": job.version,
    }


def _attempts(session: Session, job_id: int, name: str) -> tuple[list[dict[str, Any]], list[str], bool]:
    tries: list[dict[str, Any]] = []
    notices: list[str] = []
    stand_in = False
    for attempt in session.execute(
        select(attempts).where(attempts.c.job_id == job_id).order_by(attempts.c.number)
    ).all():
        hosts = []
        for row in session.execute(
            select(
                instances.c.host,
                instances.c.node_id,
                instances.c.instance_type,
                instances.c.instance_group,
                instances.c.phase,
                instances.c.report,
                instances.c.cleared,
                nodes.c.agent_id,
                agents.c.facts,
            )
            .join(nodes, nodes.c.id == instances.c.node_id)
            .join(agents, agents.c.id == nodes.c.agent_id)
            .where(instances.c.attempt_id == attempt.id)
            .order_by(instances.c.rank)
        ):
            report = row.report or {}
            notices += report.get("notices") or []
            known = known_type(row.instance_type)
            stand_in = stand_in or is_stand_in(row.instance_type, row.facts.get("accelerators", 0))
            hosts.append(
                {
                    "Host": row.host,
                    "NodeId": row.node_id,
                    "AgentId": row.agent_id,
                    "InstanceType": row.instance_type,
                    "InstanceGroup": row.instance_group,
                    "Accelerators": known.accelerators if known else 0,
                    "Phase": row.phase,
                    "Message": report.get("message"),
                    "ExitCode": report.get("exit_code"),
                    "Cleared": bool(row.cleared),
                    "LogStreamName": stream_name(name, row.host, log_stream_epoch(attempt.created_at)),
                }
            )
        tries.append(
            {
                "Number": attempt.number,
                "State": attempt.state,
                "StartTime": attempt.created_at,
                "RunningTime": attempt.running_at,
                "EndTime": attempt.ended_at,
                "Outcome": attempt.outcome,
                "Hosts": hosts,
            }
        )
    return tries, notices, stand_in
