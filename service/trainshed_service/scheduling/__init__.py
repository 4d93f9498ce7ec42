"""Scheduling: a pure planner and the serial applier that commits its decisions."""

from trainshed_service.scheduling.planner import (
    JobGone,
    JobQueued,
    NodeFree,
    NodeGone,
    NodeTaken,
    Place,
    PlannerEvent,
    State,
    Wait,
    explain,
    restore,
    step,
)

__all__ = [
    "JobGone",
    "JobQueued",
    "NodeFree",
    "NodeGone",
    "NodeTaken",
    "Place",
    "PlannerEvent",
    "State",
    "Wait",
    "explain",
    "restore",
    "step",
]
