"""Deadlines and leases: every state that is not an end has a time when the service itself moves on.

Invariants: liveness is judged by the stored lease time alone; an outage of the service itself (no heartbeat in `meta`)
extends every lease and deadline by its length, except the job's own maximum runtime.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlalchemy import func, insert, select, update
from sqlalchemy.orm import Session

from trainshed_service.events import record
from trainshed_service.jobs.attempts import Live, advance, end, load
from trainshed_service.jobs.conclusion import CLEAR_SECONDS
from trainshed_service.jobs.effects import Effects
from trainshed_service.jobs.spec import max_runtime_seconds
from trainshed_service.jobs.states import AttemptState, JobState, NodeState
from trainshed_service.nodes.losing import lose_silent_agents
from trainshed_service.pools.life import end_expired, next_expiry
from trainshed_service.pools.warning import next_warning, warn
from trainshed_service.scheduling.events import NodeGone
from trainshed_service.settings import Settings
from trainshed_service.store.tables import agents, attempts, changed, instances, meta, nodes
from trainshed_worker.protocol import EndReason, FailureCause, InstanceFailure, Phase

HEARTBEAT_KEY = "service_heartbeat"
HEARTBEAT_SECONDS = 5.0
_OUTAGE_SECONDS = 3 * HEARTBEAT_SECONDS
_LIVE = [state.value for state in AttemptState if state is not AttemptState.CLEARED]


@dataclass
class Due:
    """What a look at the deadlines brought. `overdue`: attempts to conclude, with what did not happen in time."""

    effects: Effects = field(default_factory=Effects)
    overdue: list[tuple[str, InstanceFailure]] = field(default_factory=list)
    next_at: float | None = None


def beat(session: Session, now: float) -> None:
    """Say that the service is up."""
    if changed(session, update(meta).where(meta.c.key == HEARTBEAT_KEY).values(value=repr(now))) == 0:
        session.execute(insert(meta).values(key=HEARTBEAT_KEY, value=repr(now)))


def extend_after_outage(session: Session, now: float) -> float:
    """Called once at start: the seconds by which leases and deadlines were extended (0: there was no outage)."""
    last = session.scalar(select(meta.c.value).where(meta.c.key == HEARTBEAT_KEY))
    beat(session, now)
    if last is None:
        return 0.0
    outage = now - float(last)
    if outage <= 0:
        return 0.0
    session.execute(
        update(agents)
        .where(agents.c.lease_expires_at > float(last))
        .values(lease_expires_at=agents.c.lease_expires_at + outage)
    )
    session.execute(
        update(attempts)
        .where(
            attempts.c.state.in_(
                [
                    AttemptState.PREPARING.value,
                    AttemptState.ENDING.value,
                    AttemptState.ASSEMBLING.value,
                    AttemptState.ENDED.value,
                ]
            )
        )
        .values(deadline_at=attempts.c.deadline_at + outage)
    )
    if outage > _OUTAGE_SECONDS:
        record(session, now, "service.outage", "service", f"The service was down for {outage:.0f} s")
    return outage


def look(session: Session, now: float, settings: Settings) -> Due:
    """Do what is due at `now`, and say when to look again."""
    due = Due()
    due.effects.add(lose_silent_agents(session, now, settings))
    due.effects.add(end_expired(session, now))
    warn(session, now)
    late = session.scalars(
        select(attempts.c.id)
        .where(attempts.c.state.in_(_LIVE), attempts.c.deadline_at <= now)
        .order_by(attempts.c.deadline_at)
    ).all()
    for attempt_id in late:
        live = load(session, attempt_id)
        if live is not None and live.deadline_at <= now:
            _pass_deadline(session, live, now, settings, due)
    due.next_at = _next_at(session, now)
    return due


def _next_at(session: Session, now: float) -> float | None:
    leases = session.scalar(
        select(func.min(agents.c.lease_expires_at))
        .join(nodes, nodes.c.agent_id == agents.c.id)
        .where(nodes.c.state != NodeState.LOST.value)
    )
    deadlines = session.scalar(
        select(func.min(attempts.c.deadline_at)).where(attempts.c.state.in_(_LIVE), attempts.c.deadline_at > now)
    )
    pools = (next_expiry(session), next_warning(session))
    times = [value for value in (leases, deadlines, *pools) if value is not None]
    return min(times, default=None)


def _pass_deadline(session: Session, live: Live, now: float, settings: Settings, due: Due) -> None:
    if live.state is AttemptState.PREPARING:
        behind = min(live.hosts, key=lambda host: (host.reached(Phase.READY), host.phase is not None, host.rank))
        where = f"its last phase was '{behind.phase}'" if behind.phase else "its node did not accept it"
        failure = InstanceFailure(
            cause=FailureCause.NODE,
            message=f"no progress in starting the instance for {settings.dispatch_deadline_seconds:g} s; {where}",
            at=now,
        )
        end(session, live, EndReason.PEER_FAILED, now, settings, failure, behind.host)
    elif live.state is AttemptState.RUNNING and live.job_state is not JobState.UPLOADING:
        end(session, live, EndReason.MAX_RUNTIME, now, settings)
    elif live.state is AttemptState.ENDED:
        _quarantine(session, live, now, due.effects)
    else:
        due.overdue.append((live.id, _too_late(live, now, settings)))
        return
    due.effects.wake.update(live.agent_ids)
    due.effects.add(advance(session, live.id, now, settings))


def _too_late(live: Live, now: float, settings: Settings) -> InstanceFailure:
    missing = [host.host for host in live.hosts if not host.finished]
    if any(not host.over for host in live.hosts):
        what = (
            f"the processes did not end and the artifacts were not stored within {settings.stop_grace_seconds:g} s of "
            f"grace and {settings.upload_deadline_seconds:g} s for the upload"
        )
    else:
        what = f"the artifacts were not stored within {settings.upload_deadline_seconds:g} s"
    if live.end_reason == EndReason.MAX_RUNTIME:
        what += f" after the maximum runtime of {max_runtime_seconds(live.request):g} s"
    return InstanceFailure(
        cause=FailureCause.OUTPUT, message=f"{what} (waiting for {', '.join(missing) or 'the lead'})", at=now
    )


def _quarantine(session: Session, live: Live, now: float, effects: Effects) -> None:
    """Slots that were not proven empty in time are given to nobody; their agents free them by reporting them empty."""
    reason = f"not reported empty within {CLEAR_SECONDS:g} s after job {live.job_name} had ended"
    held = session.execute(
        select(instances.c.id, instances.c.node_id).where(
            instances.c.attempt_id == live.id, instances.c.cleared.is_(False)
        )
    ).all()
    for row in held:
        session.execute(update(instances).where(instances.c.id == row.id).values(cleared=True))
        count = changed(
            session,
            update(nodes)
            .where(nodes.c.id == row.node_id, nodes.c.state == NodeState.LEASED.value)
            .values(state=NodeState.QUARANTINED.value, reason=reason, cluster_id=None),
        )
        if count:
            effects.planner.append(NodeGone(row.node_id))
            record(session, now, "node.quarantined", f"node/{row.node_id}", f"Node quarantined: {reason}")
