"""What is accepted but not acted on is kept, described, and named in the job's notices, over AWS and over REST."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.model import ListShape, Shape, StructureShape

from tests.integration.rest.conftest import Rest
from tests.unit.sagemaker.model_requests import input_shape, valid
from trainshed_service.sagemaker.support import TABLE, Row, Treatment
from trainshed_service.wire.models import operation_model

NOTED = [row for row in TABLE if row.treatment is Treatment.NOTED]
# Where the smallest valid value says nothing, or is the default.
VALUES: dict[str, Any] = {
    "ResourceConfig.VolumeSizeInGB": 30,
    "ResourceConfig.InstancePlacementConfig": {"EnableMultipleJobs": True},
    "AlgorithmSpecification.EnableSageMakerMetricsTimeSeries": True,
    "EnableInterContainerTrafficEncryption": True,
    "ProfilerConfig": {"S3OutputPath": "s3://bucket/profile"},
    "ExperimentConfig": {"ExperimentName": "e"},
    "RemoteDebugConfig": {"EnableRemoteDebug": True},
    "InfraCheckConfig": {"EnableInfraCheck": True},
    "SessionChainingConfig": {"EnableSessionTagChaining": True},
}
CHANNEL = {"ChannelName": "c", "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/in"}}}


@pytest.fixture(scope="module")
def sagemaker(rest: Rest) -> Any:
    return rest.service.client("sagemaker")


def shape_of(holder: Shape, member: str) -> Shape | None:
    for part in member.split("."):
        inner = holder.members.get(part.removesuffix("[]")) if isinstance(holder, StructureShape) else None
        if inner is None:
            return None
        holder = inner.member if part.endswith("[]") and isinstance(inner, ListShape) else inner
    return holder


def place(request: dict[str, Any], member: str, value: Any) -> None:
    node: Any = request
    *above, last = member.split(".")
    for part in above:
        if part.endswith("[]"):
            (node,) = node.setdefault(part.removesuffix("[]"), [copy.deepcopy(CHANNEL)])
        else:
            node = node.setdefault(part, {})
    node[last.removesuffix("[]")] = value


def found(described: Any, member: str) -> Any:
    for part in member.split("."):
        described = described[part.removesuffix("[]")]
        if part.endswith("[]"):
            (described,) = described
    return described


@pytest.mark.parametrize("row", NOTED, ids=lambda row: row.member)
def test_each_is_kept_and_noted(rest: Rest, sagemaker: Any, row: Row) -> None:
    shape = shape_of(input_shape("CreateTrainingJob"), row.member)
    assert shape is not None
    value = VALUES.get(row.member) or valid(shape)
    name = f"noted-{NOTED.index(row)}"
    request = rest.service.request(name, 2)
    place(request, row.member, value)
    sagemaker.create_training_job(**request)
    shown = rest.http.get(f"/v1/training-jobs/{name}").json()
    assert f"{row.member} is accepted but not acted on: {row.text}." in shown["Notices"]
    model = operation_model("sagemaker", "DescribeTrainingJob")
    assert model is not None and isinstance(model.output_shape, StructureShape)
    if shape_of(model.output_shape, row.member) is not None:
        assert found(shown, row.member) == value
        assert found(sagemaker.describe_training_job(TrainingJobName=name), row.member) == value
    rest.http.post(f"/v1/training-jobs/{name}/stop").raise_for_status()


def test_profiler_and_remote_debug_can_be_changed(rest: Rest, sagemaker: Any) -> None:
    rest.place("updated", 1)
    plain = rest.http.get("/v1/training-jobs/updated").json()["Notices"]
    changes = {
        "ProfilerConfig": {"S3OutputPath": "s3://bucket/profile", "DisableProfiler": False},
        "ProfilerRuleConfigurations": [{"RuleConfigurationName": "rule", "RuleEvaluatorImage": "image"}],
        "RemoteDebugConfig": {"EnableRemoteDebug": True},
    }
    arn = sagemaker.update_training_job(TrainingJobName="updated", **changes)["TrainingJobArn"]
    described = sagemaker.describe_training_job(TrainingJobName="updated")
    assert arn == described["TrainingJobArn"]
    assert {member: described[member] for member in changes} == changes
    sagemaker.update_training_job(TrainingJobName="updated", ProfilerConfig={"DisableProfiler": True})
    described = sagemaker.describe_training_job(TrainingJobName="updated")
    assert described["ProfilerConfig"] == {"S3OutputPath": "s3://bucket/profile", "DisableProfiler": True}
    assert described["TrainingJobStatus"] == "InProgress"
    notices = rest.http.get("/v1/training-jobs/updated").json()["Notices"]
    assert notices[: len(plain)] == plain
    assert [notice.split(" is ")[0] for notice in notices[len(plain) :]] == list(changes)
    stopped = rest.service.request("never-updated")
    sagemaker.create_training_job(**stopped)
    sagemaker.stop_training_job(TrainingJobName="never-updated")
    with pytest.raises(ClientError, match="because the training job is in status Stopped"):
        sagemaker.update_training_job(TrainingJobName="never-updated", **changes)
