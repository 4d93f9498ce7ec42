"""Scheduling: a pure planner and the serial applier that commits its decisions."""

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
    PoolEnded,
    QuotaRule,
    Quotas,
    Reclaim,
    Running,
    Tick,
    Usage,
    Wait,
)
from trainshed_service.scheduling.planner import next_wake, restore, step, step_all
from trainshed_service.scheduling.preview import explain
from trainshed_service.scheduling.state import Policy, State

__all__ = [
    "Decision",
    "GiveUp",
    "JobGone",
    "JobQueued",
    "NodeFree",
    "NodeGone",
    "NodeTaken",
    "Place",
    "PlannerEvent",
    "Policy",
    "PoolAvailable",
    "PoolEnded",
    "QuotaRule",
    "Quotas",
    "Reclaim",
    "Running",
    "State",
    "Tick",
    "Usage",
    "Wait",
    "explain",
    "next_wake",
    "restore",
    "step",
    "step_all",
]
