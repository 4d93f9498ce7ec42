"""What the service wants one slot to hold: one instance (`algo-N`) of one attempt of one job."""

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, Field


class Action(StrEnum):
    """What the agent must bring the assignment to. The order is one-way: an assignment never goes back."""

    PREPARE = "prepare"
    """Make the sandbox, code, environment and data ready, then report READY and wait: no user process yet (but see
    Assignment.start_when_ready)."""
    RUN = "run"
    """All hosts of the gang are READY: start the user's process."""
    STOP = "stop"
    """SIGTERM to the whole tree, SIGKILL after `grace_seconds`; then go on as after an ordinary exit (upload)."""
    ASSEMBLE = "assemble"
    """The processes of all hosts have ended and the other hosts' output parts are uploaded (`output.parts`): the lead
    host writes the job's artifacts. Only the lead host gets this."""
    CLEAR = "clear"
    """Empty the slot: end what still runs at once, delete the instance's files, report the slot EMPTY."""


class EndReason(StrEnum):
    """Why the service asked for STOP; the agent logs it and passes it on in its report."""

    STOP_REQUESTED = "stop-requested"
    MAX_RUNTIME = "max-runtime"
    PEER_FAILED = "peer-failed"
    SUPERSEDED = "superseded"


class ClusterHost(BaseModel):
    """One member of the gang. Names resolve on every host before any process starts."""

    name: str = Field(description="algo-1 … algo-N; the number over all instance groups")
    rank: int = Field(ge=0)
    node_id: str
    agent_id: str
    instance_type: str
    instance_group: str = "homogeneousCluster"
    address: str | None = Field(default=None, description="IP address on the cluster's network; null while unknown")


class ObjectStoreAccess(BaseModel):
    """Short-lived credentials of this attempt, limited to the job's inputs and outputs, and where to use them."""

    endpoint_url: str
    region: str
    access_key_id: str
    secret_access_key: str
    session_token: str
    expires_at: float = Field(description="epoch seconds; a fresh set comes with the desired state before then")


class OutputPlan(BaseModel):
    """Where artifacts go. With GZIP the lead host writes model.tar.gz and output.tar.gz, with NONE each a tree."""

    base_uri: str = Field(description="s3://bucket/prefix/<job>/output, without a slash at the end")
    compression: str = "GZIP"
    parts_uri: str = Field(description="s3 prefix for the parts of hosts that are not the lead, deleted by the lead")
    parts: list[str] = Field(default_factory=list, description="URIs of parts to merge, in host order (ASSEMBLE only)")


class Assignment(BaseModel):
    """One slot's share of an attempt. `id` is stable for the attempt and host; `epoch` is the cluster's."""

    id: str
    node_id: str
    job_name: str
    job_arn: str
    attempt_id: str
    attempt_number: int
    cluster_id: str
    epoch: int
    action: Action
    end_reason: EndReason | None = None
    grace_seconds: float = 120.0
    host: ClusterHost
    hosts: list[ClusterHost] = Field(description="all members in rank order, this one included")
    request: dict[str, Any] = Field(description="the CreateTrainingJob request as accepted")
    object_store: ObjectStoreAccess
    output: OutputPlan
    log_stream_epoch: int = Field(description="the number that ends the job's log stream names")
    vcpus: int
    memory_bytes: int
    accelerators: int = Field(description="devices that the script sees; a stand-in's number where stand_in is true")
    stand_in: bool = Field(default=False, description="the type's accelerators are absent: CPU processes stand in")
    start_when_ready: bool = Field(
        default=False,
        description="the whole gang is on this agent: it goes on when all of it is READY, without waiting for RUN",
    )
    gang_secret: str | None = Field(
        default=None,
        description="the same for all hosts of the attempt, and for nobody else: launchers' proof to peers",
    )
    deadline: float | None = Field(
        default=None, description="epoch seconds; the agent stops the job then by itself, service or no service"
    )

    @property
    def is_lead(self) -> bool:
        return self.host.rank == 0
