"""What an agent has observed of its slots and of the assignments that it holds."""

from enum import StrEnum

from pydantic import BaseModel, Field


class Phase(StrEnum):
    """Where one instance of an attempt stands. The order below is one-way; FAILED and CLEARED may follow any."""

    ACCEPTED = "accepted"
    DOWNLOADING = "downloading"
    INSTALLING = "installing"
    READY = "ready"
    RUNNING = "running"
    EXITED = "exited"
    UPLOADING = "uploading"
    PART_UPLOADED = "part-uploaded"
    """This host's files are in the store and every line that it logged is acknowledged; the lead waits for ASSEMBLE."""
    FINISHED = "finished"
    """Artifacts of the job are in the store (lead host) or merged (others) and every line is acknowledged."""
    CLEARED = "cleared"
    """No process of the assignment lives and none of its files remain: the slot may be given away."""


class FailureCause(StrEnum):
    """What ended the instance. `trainshed_service.jobs.causes` maps each to AWS status, message and retry class."""

    ALGORITHM = "algorithm"
    """The user's process failed: exit code or signal, with the reason file or last exception line."""
    USER_INPUT = "user-input"
    """Code, data or requirements of the user could not be had (missing object, not a tar.gz, pip failed)."""
    NETWORK_ISOLATION = "network-isolation"
    OUTPUT = "output"
    """The artifacts could not be stored; names the path and the cause."""
    UNSUPPORTED = "unsupported"
    """The spec asks for what this node can't do; says what is missing."""
    NODE = "node"
    """The sandbox or the machine failed: an infrastructure fault, not the user's."""


class InstanceFailure(BaseModel):
    cause: FailureCause
    message: str = Field(max_length=4096, description="one sentence or more that a user can act on")
    exit_code: int | None = None
    signal: int | None = None
    local_rank: int | None = None
    at: float = Field(description="epoch seconds; the earliest failure of the gang gives the job's reason")


class PhaseSpan(BaseModel):
    """One row of the phase ledger: `end` is null while it lasts."""

    name: str
    start: float
    end: float | None = None


class AssignmentReport(BaseModel):
    """State of one assignment. `revision` grows with each change, so an older report never overwrites a newer one."""

    id: str
    attempt_id: str
    epoch: int
    revision: int
    phase: Phase
    message: str | None = Field(
        default=None, description="progress in words, e.g. '120 of 480 MB of channel train, 35.2 MB/s, 10 s left'"
    )
    address: str | None = None
    exit_code: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    failure: InstanceFailure | None = None
    part_uris: list[str] = Field(default_factory=list)
    end_reason: str | None = Field(default=None, description="the agent stopped it by itself, e.g. 'max-runtime'")
    log_lines: int = Field(default=0, description="lines acknowledged by the log ingest so far")
    spans: list[PhaseSpan] = Field(default_factory=list)
    notices: list[str] = Field(default_factory=list, description="stand-ins, ignored options and the like")


class SlotState(StrEnum):
    EMPTY = "empty"
    HELD = "held"
    QUARANTINED = "quarantined"


class SlotReport(BaseModel):
    node_id: str
    state: SlotState
    reason: str | None = None
    assignment: AssignmentReport | None = None
