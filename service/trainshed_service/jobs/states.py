"""Transition tables of jobs and attempts, and what each cause means to the user.

A state change is legal only where a row here says so; `lifecycle` applies rows as guarded updates, so an illegal move
changes no row. The AWS status words of a state stand beside it, nowhere else.
"""

from dataclasses import dataclass
from enum import StrEnum


class JobState(StrEnum):
    """Internal state of a job. QUEUED and PLACED are both 'Starting' to AWS clients."""

    QUEUED = "queued"
    PLACED = "placed"
    DOWNLOADING = "downloading"
    TRAINING = "training"
    STOPPING = "stopping"
    UPLOADING = "uploading"
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"
    DELETING = "deleting"


TERMINAL = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.STOPPED})
ACTIVE = frozenset(JobState) - TERMINAL - {JobState.DELETING}


class Cause(StrEnum):
    """Why a job moved. Exactly one per transition row."""

    PLACED = "placed"
    DOWNLOAD_STARTED = "download-started"
    GANG_RUNNING = "gang-running"
    PROCESSES_ENDED = "processes-ended"
    ALGORITHM_ERROR = "algorithm-error"
    CLIENT_ERROR = "client-error"
    NODE_FAULT = "node-fault"
    OUTPUT_ERROR = "output-error"
    RETRY = "retry"
    CAPACITY = "capacity"
    STOP_REQUESTED = "stop-requested"
    MAX_RUNTIME = "max-runtime"
    STOP_FINISHED = "stop-finished"
    ARTIFACTS_STORED = "artifacts-stored"
    DELETE_REQUESTED = "delete-requested"


@dataclass(frozen=True)
class AwsStatus:
    status: str
    secondary: str
    message: str


AWS_STATUS: dict[JobState, AwsStatus] = {
    JobState.QUEUED: AwsStatus("InProgress", "Starting", "Starting the training job"),
    JobState.PLACED: AwsStatus("InProgress", "Starting", "Preparing the instances for training"),
    JobState.DOWNLOADING: AwsStatus("InProgress", "Downloading", "Downloading input data"),
    JobState.TRAINING: AwsStatus("InProgress", "Training", "Training image download completed. Training in progress."),
    JobState.STOPPING: AwsStatus("Stopping", "Stopping", "Stopping the training job"),
    JobState.UPLOADING: AwsStatus("InProgress", "Uploading", "Uploading generated training model"),
    JobState.COMPLETED: AwsStatus("Completed", "Completed", "Training job completed"),
    JobState.FAILED: AwsStatus("Failed", "Failed", "Training job failed"),
    JobState.STOPPED: AwsStatus("Stopped", "Stopped", "Training job stopped"),
    JobState.DELETING: AwsStatus("Deleting", "Stopped", "Deleting the training job"),
}

_S, _C = JobState, Cause

JOB_TRANSITIONS: dict[tuple[JobState, Cause], JobState] = {
    (_S.QUEUED, _C.PLACED): _S.PLACED,
    (_S.QUEUED, _C.STOP_REQUESTED): _S.STOPPED,
    (_S.QUEUED, _C.CLIENT_ERROR): _S.FAILED,
    (_S.QUEUED, _C.CAPACITY): _S.FAILED,
    (_S.PLACED, _C.DOWNLOAD_STARTED): _S.DOWNLOADING,
    (_S.PLACED, _C.GANG_RUNNING): _S.TRAINING,
    (_S.DOWNLOADING, _C.GANG_RUNNING): _S.TRAINING,
    (_S.TRAINING, _C.PROCESSES_ENDED): _S.UPLOADING,
    (_S.UPLOADING, _C.ARTIFACTS_STORED): _S.COMPLETED,
    (_S.UPLOADING, _C.ALGORITHM_ERROR): _S.FAILED,
    (_S.UPLOADING, _C.STOP_REQUESTED): _S.STOPPING,
    (_S.UPLOADING, _C.MAX_RUNTIME): _S.STOPPED,
    (_S.STOPPING, _C.STOP_FINISHED): _S.STOPPED,
    **{
        (state, cause): _S.FAILED
        for state in (_S.PLACED, _S.DOWNLOADING, _S.TRAINING, _S.UPLOADING)
        for cause in (_C.CLIENT_ERROR, _C.NODE_FAULT, _C.OUTPUT_ERROR)
    },
    **{(state, _C.RETRY): _S.QUEUED for state in (_S.PLACED, _S.DOWNLOADING, _S.TRAINING, _S.UPLOADING)},
    **{(state, _C.STOP_REQUESTED): _S.STOPPING for state in (_S.PLACED, _S.DOWNLOADING, _S.TRAINING)},
    **{(state, _C.MAX_RUNTIME): _S.STOPPING for state in (_S.PLACED, _S.DOWNLOADING, _S.TRAINING)},
    (_S.STOPPING, _C.NODE_FAULT): _S.STOPPED,
    (_S.STOPPING, _C.OUTPUT_ERROR): _S.FAILED,
    **{(state, _C.DELETE_REQUESTED): _S.DELETING for state in TERMINAL},
}


class AttemptState(StrEnum):
    """State of one try of a job on one cluster."""

    PREPARING = "preparing"
    RUNNING = "running"
    ENDING = "ending"
    """Some process failed, a stop was asked for or all exited: processes end, then parts are uploaded."""
    ASSEMBLING = "assembling"
    ENDED = "ended"
    """Artifacts and the last log line are stored; the slots are being emptied."""
    CLEARED = "cleared"
    """Every slot of the attempt is proven empty, or its node is lost."""


ATTEMPT_TRANSITIONS: dict[AttemptState, frozenset[AttemptState]] = {
    AttemptState.PREPARING: frozenset({AttemptState.RUNNING, AttemptState.ENDING, AttemptState.ENDED}),
    AttemptState.RUNNING: frozenset({AttemptState.ENDING, AttemptState.ASSEMBLING, AttemptState.ENDED}),
    AttemptState.ENDING: frozenset({AttemptState.ASSEMBLING, AttemptState.ENDED}),
    AttemptState.ASSEMBLING: frozenset({AttemptState.ENDED}),
    AttemptState.ENDED: frozenset({AttemptState.CLEARED}),
    AttemptState.CLEARED: frozenset(),
}
LIVE_ATTEMPT = frozenset(AttemptState) - {AttemptState.CLEARED}


class NodeState(StrEnum):
    """`free + leased + warm + quarantined + lost` is the number of slots, at every moment."""

    FREE = "free"
    LEASED = "leased"
    WARM = "warm"
    QUARANTINED = "quarantined"
    LOST = "lost"


class PoolStatus(StrEnum):
    """WarmPoolStatus as AWS shows it on a job: what became of the instances that the job ran on."""

    IN_USE = "InUse"
    AVAILABLE = "Available"
    REUSED = "Reused"
    TERMINATED = "Terminated"


class ClusterState(StrEnum):
    HELD = "held"
    WARM = "warm"
    RELEASING = "releasing"
    GONE = "gone"
