"""What follows from a committed change, as data: whoever committed it carries it out."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainshed_service.scheduling.events import PlannerEvent


@dataclass
class Effects:
    """What follows from a committed change. `wake`: agents; `finish`: attempts; `remove`: jobs to delete."""

    wake: set[str] = field(default_factory=set)
    finish: list[str] = field(default_factory=list)
    planner: list[PlannerEvent] = field(default_factory=list)
    remove: list[int] = field(default_factory=list)

    def add(self, other: Effects) -> None:
        self.wake |= other.wake
        self.finish += other.finish
        self.planner += other.planner
        self.remove += other.remove
