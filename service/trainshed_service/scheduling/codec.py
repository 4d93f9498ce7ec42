"""Events and decisions of the planner as JSON, and events back from it.

Invariant: `event_of(event_record(event)) == event`.
"""

from __future__ import annotations

from dataclasses import fields
from itertools import groupby
from typing import Any

from trainshed_service.jobs.spec import Member
from trainshed_service.scheduling.events import (
    Decision,
    GiveUp,
    JobGone,
    JobQueued,
    NodeFree,
    NodeGone,
    NodeTaken,
    Place,
    PlannerEvent,
    PoolAvailable,
    PoolComing,
    PoolEnded,
    QuotaRule,
    Quotas,
    Reclaim,
    Running,
    Tick,
    Usage,
    Wait,
)

Record = dict[str, Any]
_EVENTS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        JobQueued,
        JobGone,
        NodeFree,
        NodeTaken,
        NodeGone,
        Running,
        PoolComing,
        PoolAvailable,
        PoolEnded,
        Quotas,
        Usage,
        Tick,
    )
}
_SETS = frozenset({"avoid", "instance_types"})
_TUPLES = frozenset({"node_ids"})


def event_record(event: PlannerEvent) -> Record:
    """A JSON object; members that have their default are left out."""
    record: Record = {"event": type(event).__name__}
    for field in fields(event):
        if not field.init:
            continue
        value = getattr(event, field.name)
        if value == field.default:
            continue
        record[field.name] = _plain(field.name, value)
    return record


def event_of(record: Record) -> PlannerEvent:
    """ValueError where the record is of no known event."""
    kind = _EVENTS.get(record.get("event", ""))
    if kind is None:
        raise ValueError(f"there is no planner event {record.get('event')!r}")
    values = {name: _typed(name, value) for name, value in record.items() if name != "event"}
    event: PlannerEvent = kind(**values)
    return event


def decision_record(decision: Decision) -> Record:
    match decision:
        case Place():
            found: Record = {"place": decision.job.job_id, "nodes": list(decision.nodes)}
            if decision.pool is not None:
                found["pool"] = decision.pool
            return found
        case Wait():
            return {"wait": decision.job_id, "reason": decision.reason}
        case Reclaim():
            return {"reclaim": decision.cluster_id, "for": decision.for_job_id, "reason": decision.reason}
        case GiveUp():
            return {"giveUp": decision.job_id, "reason": decision.reason}


def _plain(name: str, value: Any) -> Any:
    if name in _SETS:
        return sorted(value)
    if name in _TUPLES:
        return list(value)
    if name == "members":
        return [[kind.instance_type, kind.group, len(list(same))] for kind, same in groupby(value)]
    if name == "rules":
        return [[rule.subject_kind, rule.subject, rule.instance_type, rule.instances, rule.name] for rule in value]
    return value


def _typed(name: str, value: Any) -> Any:
    if name in _SETS:
        return frozenset(value)
    if name in _TUPLES:
        return tuple(value)
    if name == "members":
        members: tuple[Member, ...] = ()
        for instance_type, group, count in value:
            members += (Member(instance_type, group),) * count
        return members
    if name == "rules":
        return tuple(QuotaRule(*rule) for rule in value)
    return value
