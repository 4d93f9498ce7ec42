"""One slot of the machine: what it holds and how it is reported."""

from dataclasses import dataclass

from trainshed_worker.agent.runner import AssignmentRunner
from trainshed_worker.protocol import SlotReport, SlotState


@dataclass
class Slot:
    """`quarantine`: why it is not proven empty; it then takes nothing until an operator has cured it."""

    index: int
    runner: AssignmentRunner | None = None
    quarantine: str | None = None

    def report(self, node_id: str) -> SlotReport:
        """The slot as it is now."""
        if self.runner is not None:
            accepted = self.runner.state.record.accepted
            report = self.runner.report.model_copy(deep=True) if accepted else None
            return SlotReport(node_id=node_id, state=SlotState.HELD, assignment=report)
        if self.quarantine:
            return SlotReport(node_id=node_id, state=SlotState.QUARANTINED, reason=self.quarantine)
        return SlotReport(node_id=node_id, state=SlotState.EMPTY)
