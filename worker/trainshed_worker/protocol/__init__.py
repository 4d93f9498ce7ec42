"""Wire models of the agent protocol (HTTP + JSON, outbound from the node only), shared by service and worker.

Invariants the protocol keeps:

* The service states a *desired* set of assignments; the agent reports *observed* ones. Both are whole states, not
  commands, so a message that is late, doubled or lost changes nothing once the next one arrives.
* Every assignment carries its cluster's `epoch`. A report with an older epoch than the service's is ignored; a desired
  assignment with a newer epoch than a running one makes the agent empty the slot first.
* Losing the service never ends a process: an agent without an answer goes on with the last desired state it stored.
"""

from trainshed_worker.protocol.assignment import (
    Action,
    Assignment,
    ClusterHost,
    EndReason,
    ObjectStoreAccess,
    OutputPlan,
)
from trainshed_worker.protocol.messages import (
    DesiredState,
    EnrollRequest,
    EnrollResponse,
    LogBatch,
    LogBatchAck,
    LogLine,
    MachineFacts,
    MetricBatch,
    MetricPoint,
    ReportRequest,
    ReportResponse,
    SlotFacts,
)
from trainshed_worker.protocol.reports import (
    AssignmentReport,
    FailureCause,
    InstanceFailure,
    Phase,
    PhaseSpan,
    SlotReport,
    SlotState,
)

__all__ = [
    "Action",
    "Assignment",
    "AssignmentReport",
    "ClusterHost",
    "DesiredState",
    "EndReason",
    "EnrollRequest",
    "EnrollResponse",
    "FailureCause",
    "InstanceFailure",
    "LogBatch",
    "LogBatchAck",
    "LogLine",
    "MachineFacts",
    "MetricBatch",
    "MetricPoint",
    "ObjectStoreAccess",
    "OutputPlan",
    "Phase",
    "PhaseSpan",
    "ReportRequest",
    "ReportResponse",
    "SlotFacts",
    "SlotReport",
    "SlotState",
]
