"""Renders a job as DescribeTrainingJob shows it: member names and types are those of AWS's output shape.

What the request said is echoed as it was sent; defaults that clients read without asking are stated.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from trainshed_service.jobs.reach import EVERYBODY, Reach
from trainshed_service.jobs.spec import DEFAULT_MAX_RUNTIME_SECONDS, model_artifacts
from trainshed_service.jobs.states import TERMINAL, JobState
from trainshed_service.store import Database
from trainshed_service.store.prepared import Prepared
from trainshed_service.store.tables import job_transitions, jobs
from trainshed_service.wire.errors import not_found

ECHOED = (
    "HyperParameters",
    "AlgorithmSpecification",
    "RoleArn",
    "InputDataConfig",
    "OutputDataConfig",
    "ResourceConfig",
    "VpcConfig",
    "StoppingCondition",
    "CheckpointConfig",
    "DebugHookConfig",
    "ExperimentConfig",
    "DebugRuleConfigurations",
    "TensorBoardOutputConfig",
    "ProfilerConfig",
    "ProfilerRuleConfigurations",
    "Environment",
    "RetryStrategy",
    "RemoteDebugConfig",
    "InfraCheckConfig",
    "MlflowConfig",
    "ModelPackageConfig",
)
SWITCHES = ("EnableNetworkIsolation", "EnableInterContainerTrafficEncryption", "EnableManagedSpotTraining")

COLUMNS = (
    jobs.c.id,
    jobs.c.name,
    jobs.c.arn,
    jobs.c.state,
    jobs.c.status,
    jobs.c.secondary_status,
    jobs.c.failure_reason,
    jobs.c.request,
    jobs.c.created_at,
    jobs.c.modified_at,
    jobs.c.training_started_at,
    jobs.c.training_ended_at,
    jobs.c.final_metrics,
    jobs.c.pool_status,
    jobs.c.pool_reused_by,
    jobs.c.pool_retained_seconds,
)

_JOB = Prepared(select(*COLUMNS, jobs.c.version).where(jobs.c.id == bindparam("wanted")))
_JOB_MEMBERS = (*(str(column.key) for column in COLUMNS), "version")
_TRANSITION_MEMBERS = ("status", "message", "started_at", "ended_at")
_TRANSITIONS = Prepared(
    select(*(job_transitions.c[name] for name in _TRANSITION_MEMBERS))
    .where(job_transitions.c.job_id == bindparam("wanted"))
    .order_by(job_transitions.c.seq)
)
_VERSION = Prepared(
    select(jobs.c.id, jobs.c.version, jobs.c.state, jobs.c.user_id).where(jobs.c.name == bindparam("wanted"))
)


def transitions_of(session: Session, job_id: int) -> Sequence[Any]:
    return session.execute(
        select(*(job_transitions.c[name] for name in _TRANSITION_MEMBERS))
        .where(job_transitions.c.job_id == job_id)
        .order_by(job_transitions.c.seq)
    ).all()


def render(job: Any, transitions: Sequence[Any]) -> dict[str, Any]:
    """`job` has COLUMNS, a transition the columns of `transitions_of`. Times are epoch seconds."""
    request: dict[str, Any] = job.request
    answer: dict[str, Any] = {
        "TrainingJobName": job.name,
        "TrainingJobArn": job.arn,
        "ModelArtifacts": {"S3ModelArtifacts": model_artifacts(request)},
        "TrainingJobStatus": job.status,
        "SecondaryStatus": job.secondary_status,
    }
    if job.failure_reason is not None:
        answer["FailureReason"] = job.failure_reason
    for member in ECHOED:
        if request.get(member) is not None:
            answer[member] = request[member]
    for member in SWITCHES:
        answer[member] = bool(request.get(member, False))
    answer["OutputDataConfig"] = {"KmsKeyId": "", "CompressionType": "GZIP", **request["OutputDataConfig"]}
    answer["StoppingCondition"] = {
        "MaxRuntimeInSeconds": DEFAULT_MAX_RUNTIME_SECONDS,
        **(request.get("StoppingCondition") or {}),
    }
    if request.get("InputDataConfig"):
        answer["InputDataConfig"] = [
            {"CompressionType": "None", "RecordWrapperType": "None", **channel}
            for channel in request["InputDataConfig"]
        ]
    if request.get("ProfilerConfig"):
        disabled = request["ProfilerConfig"].get("DisableProfiler", False)
        answer["ProfilingStatus"] = "Disabled" if disabled else "Enabled"
    answer["CreationTime"] = job.created_at
    answer["LastModifiedTime"] = job.modified_at
    answer |= _times(job)
    answer["SecondaryStatusTransitions"] = [
        {
            "Status": row.status,
            "StartTime": row.started_at,
            **({"EndTime": row.ended_at} if row.ended_at is not None else {}),
            "StatusMessage": row.message,
        }
        for row in transitions
    ]
    if job.final_metrics:
        answer["FinalMetricDataList"] = job.final_metrics
    pool = pool_status(job.pool_status, job.pool_retained_seconds, job.pool_reused_by)
    if pool is not None:
        answer["WarmPoolStatus"] = pool
    return answer


def pool_status(status: str | None, retained_seconds: int | None, reused_by: str | None) -> dict[str, Any] | None:
    """WarmPoolStatus; None for a job that has nothing to do with a pool."""
    if status is None:
        return None
    answer: dict[str, Any] = {"Status": status}
    if retained_seconds is not None:
        answer["ResourceRetainedBillableTimeInSeconds"] = retained_seconds
    if reused_by is not None:
        answer["ReusedByJob"] = reused_by
    return answer


class Descriptions:
    """Rendered jobs by (id, version): a job that has not changed is not read and rendered anew.

    Every change of a job bumps its version in the same transaction (`lifecycle`), so an entry is never stale. The
    answers are shared: whoever wants to change one copies it.
    """

    def __init__(self, most: int = 2_000) -> None:
        self._most = most
        self._entries: OrderedDict[tuple[int, int], dict[str, Any]] = OrderedDict()

    async def read(self, database: Database, name: str, reach: Reach = EVERYBODY) -> tuple[str, int, dict[str, Any]]:
        """(state, id, answer) of the job. Not found where it is out of reach."""
        while True:
            found = await database.look(_VERSION, {"wanted": name})
            if not found:
                raise not_found()
            job_id, version, state, user_id = found[0]
            reach.require(user_id)
            key = (job_id, version)
            answer = self._entries.get(key)
            if answer is not None:
                self._entries.move_to_end(key)
                return state, job_id, answer
            await self._render(database, name, job_id)

    async def _render(self, database: Database, name: str, job_id: int) -> None:
        """Keep the answer for what the job is now; not where it changed between the look-ups."""
        job = await database.look(_JOB, {"wanted": job_id})
        transitions = await database.look(_TRANSITIONS, {"wanted": job_id})
        ((found_id, version, *_),) = await database.look(_VERSION, {"wanted": name}) or [(None, None)]
        row = [_named(_JOB_MEMBERS, values) for values in job]
        if not row or (row[0].id, row[0].version) != (found_id, version):
            return
        self._entries[job_id, version] = render(row[0], [_named(_TRANSITION_MEMBERS, row) for row in transitions])
        if len(self._entries) > self._most:
            self._entries.popitem(last=False)


def _named(members: Sequence[str], values: Sequence[Any]) -> SimpleNamespace:
    return SimpleNamespace(**dict(zip(members, values, strict=True)))


def with_message(answer: dict[str, Any], message: str) -> dict[str, Any]:
    """The same answer with other words in its last transition."""
    *earlier, last = answer["SecondaryStatusTransitions"]
    return {**answer, "SecondaryStatusTransitions": [*earlier, {**last, "StatusMessage": message}]}


def _times(job: Any) -> dict[str, Any]:
    """Start, end and whole seconds, per instance; those of a job that never started are absent."""
    if job.training_started_at is None:
        return {}
    times: dict[str, Any] = {"TrainingStartTime": job.training_started_at}
    if job.training_ended_at is not None and JobState(job.state) in (TERMINAL | {JobState.DELETING}):
        seconds = max(0, round(job.training_ended_at - job.training_started_at))
        times["TrainingEndTime"] = job.training_ended_at
        times["TrainingTimeInSeconds"] = seconds
        times["BillableTimeInSeconds"] = seconds
    return times
