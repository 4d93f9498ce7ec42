"""The messages themselves, one pair per endpoint.

| endpoint | body → answer | served by |
|---|---|---|
| POST /agent/v1/enroll  | EnrollRequest → EnrollResponse; `Authorization: Bearer <enrollment token>` | API |
| POST /agent/v1/reports | ReportRequest → ReportResponse; `Authorization: Bearer <agent key>` (as all below) | API |
| GET /agent/v1/desired?version=V&wait=S | → DesiredState; at once where version ≠ V, else within S seconds | API |
| POST /ingest/v1/logs    | LogBatch → LogBatchAck | ingest |
| POST /ingest/v1/metrics | MetricBatch → 204 | ingest |

Errors are `{"code": …, "message": …}`. 401: the key is unknown (enroll again with the token); 409: this agent's
boot was replaced by a newer one of the same agent (stop).
"""

from pydantic import BaseModel, Field

from trainshed_worker.protocol.assignment import Assignment
from trainshed_worker.protocol.reports import SlotReport


class SlotFacts(BaseModel):
    index: int = Field(ge=0)
    instance_types: list[str] = Field(default_factory=list, description="empty: becomes whatever known type is asked")


class MachineFacts(BaseModel):
    hostname: str
    cpus: int
    memory_bytes: int
    accelerators: int = 0
    isolation: str = Field(description="'full', or 'none: <what is missing>'")
    features: list[str] = Field(default_factory=list, description="e.g. fuse, cgroup-v1, cgroup-v2, mpirun")
    version: str


class EnrollRequest(BaseModel):
    agent_name: str = Field(description="stable over restarts; enrolling twice by one name gives one agent")
    boot_id: str = Field(description="new at each start of the agent process")
    facts: MachineFacts
    slots: list[SlotFacts]


class EnrollResponse(BaseModel):
    agent_id: str
    agent_key: str
    node_ids: list[str] = Field(description="in the order of the request's slots")
    lease_seconds: float
    ingest_url: str


class ReportRequest(BaseModel):
    agent_id: str
    boot_id: str
    slots: list[SlotReport]


class ReportResponse(BaseModel):
    lease_seconds: float
    desired_version: int


class DesiredState(BaseModel):
    """All assignments of this agent's slots; a slot that is not named is to be empty."""

    version: int
    assignments: list[Assignment]
    kept_clusters: list[str] = Field(
        default_factory=list,
        description="clusters that are or become warm pools on this agent's nodes: their networks and warm-pool cache "
        "directories stay; those of a cluster that neither this list nor an assignment names are removed",
    )


class LogLine(BaseModel):
    """`seq` counts from 0 per (attempt_id, source) without a gap; `stream` is the host whose stream shows the line."""

    seq: int
    timestamp_ms: int
    stream: str
    text: str


class LogBatch(BaseModel):
    job_name: str
    attempt_id: str
    source: str = Field(description="host that wrote the lines, algo-N")
    lines: list[LogLine]


class LogBatchAck(BaseModel):
    next_seq: int = Field(description="first number not yet stored; lower ones need not be sent again")


class MetricPoint(BaseModel):
    """`host` is null for the job's own metrics (MetricDefinitions), algo-N for utilisation samples."""

    name: str
    value: float
    timestamp_ms: int
    host: str | None = None
    seq: int | None = Field(default=None, description="number of the log line it was read from; makes it unique")


class MetricBatch(BaseModel):
    job_name: str
    attempt_id: str
    source: str
    points: list[MetricPoint]
