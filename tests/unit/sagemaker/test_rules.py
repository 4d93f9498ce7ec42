"""Rules between members of CreateTrainingJob, what is refused and noted, and unknown members."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.depth import examples
from trainshed_service.sagemaker import OPERATIONS, support, validate
from trainshed_service.wire.errors import ApiError

BASE: dict[str, Any] = {
    "TrainingJobName": "a-job",
    "RoleArn": "arn:aws:iam::123456789012:role/SomeRole",
    "AlgorithmSpecification": {"TrainingImage": "image:1", "TrainingInputMode": "File"},
    "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1},
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
}
DELETE = object()


def channel(name: str = "train", **more: Any) -> dict[str, Any]:
    objects = {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/in", **more.pop("s3", {})}
    return {"ChannelName": name, "DataSource": {"S3DataSource": objects}, **more}


def with_(**changes: Any) -> dict[str, Any]:
    """BASE with changes; `A__B` goes into a structure, DELETE removes."""
    request = copy.deepcopy(BASE)
    for path, value in changes.items():
        *above, last = path.split("__")
        holder = request
        for part in above:
            holder = holder.setdefault(part, {})
        if value is DELETE:
            holder.pop(last, None)
        else:
            holder[last] = value
    return request


def refusal(request: dict[str, Any]) -> str:
    with pytest.raises(ApiError) as caught:
        validate("CreateTrainingJob", request)
    assert (caught.value.code, caught.value.status) == ("ValidationException", 400)
    return caught.value.message


GROUP = {"InstanceGroupName": "g1", "InstanceType": "ml.m5.large", "InstanceCount": 1}
GROUPS = {
    "ResourceConfig__InstanceType": DELETE,
    "ResourceConfig__InstanceCount": DELETE,
    "ResourceConfig__InstanceGroups": [GROUP],
}
SPOT = {"EnableManagedSpotTraining": True, "StoppingCondition__MaxWaitTimeInSeconds": 7200}

AWS_SENTENCES = [
    (
        with_(AlgorithmSpecification=DELETE, ResourceConfig=DELETE, StoppingCondition=DELETE),
        "3 validation errors detected: Value null at 'algorithmSpecification' failed to satisfy constraint: Member must"
        " not be null; Value null at 'resourceConfig' failed to satisfy constraint: Member must not be null; Value null"
        " at 'stoppingCondition' failed to satisfy constraint: Member must not be null",
    ),
    (
        with_(ResourceConfig__InstanceCount=0),
        "1 validation error detected: Value '0' at 'resourceConfig.instanceCount' failed to satisfy constraint: Member"
        " must have value greater than or equal to 1",
    ),
    (
        with_(ResourceConfig__InstanceGroups=[GROUP]),
        "InstanceType or InstanceCount cannot be specified with InstanceGroups",
    ),
    (
        with_(StoppingCondition__MaxWaitTimeInSeconds=7200),
        "Invalid MaxWaitTimeInSeconds. It is only supported when EnableManagedSpotTraining is set to true",
    ),
    (
        with_(EnableManagedSpotTraining=True, StoppingCondition__MaxWaitTimeInSeconds=3599),
        "Invalid MaxWaitTimeInSeconds. It must be present and be greater than or equal to MaxRuntimeInSeconds",
    ),
    (
        with_(
            **GROUPS,
            InputDataConfig=[channel("a", s3={"InstanceGroupNames": ["g1"]}), channel("b"), channel("c")],
        ),
        "Some channels have assigned instance groups: [a] while others not: [b, c]",
    ),
    (
        with_(Tags=[{"Key": "Team", "Value": "a"}, {"Key": "team", "Value": "b"}]),
        "Duplicate tag keys found. Please note that Tag keys are case insensitive.",
    ),
    (
        with_(StoppingCondition__MaxRuntimeInSeconds=28 * 24 * 3600 + 1),
        "1 validation error detected: Value '2419201' at 'stoppingCondition.maxRuntimeInSeconds' failed to satisfy"
        " constraint: Member must have value less than or equal to 2419200",
    ),
]


@pytest.mark.parametrize(("request_", "sentence"), AWS_SENTENCES)
def test_sentences_that_tools_know(request_: dict[str, Any], sentence: str) -> None:
    assert refusal(request_) == sentence


OTHER_RULES = [
    (with_(AlgorithmSpecification__TrainingImage=DELETE), "Exactly one of TrainingImage and AlgorithmName"),
    (with_(AlgorithmSpecification__AlgorithmName="alg"), "Exactly one of TrainingImage and AlgorithmName"),
    (with_(ResourceConfig__InstanceType=DELETE), "Value null at 'resourceConfig.instanceType'"),
    (with_(ResourceConfig__InstanceCount=DELETE), "Value null at 'resourceConfig.instanceCount'"),
    (with_(ResourceConfig__InstanceType="ml.m5.huge"), "Member must satisfy enum value set: ["),
    (with_(**GROUPS, ResourceConfig__KeepAlivePeriodInSeconds=60), "not supported for heterogeneous"),
    (with_(**SPOT, ResourceConfig__KeepAlivePeriodInSeconds=60), "not supported with managed spot"),
    (with_(EnableManagedSpotTraining=True), "Invalid MaxWaitTimeInSeconds. It must be present"),
    (with_(**{**GROUPS, "ResourceConfig__InstanceGroups": [GROUP, GROUP]}), "names must be unique: [g1, g1]"),
    (
        with_(**{**GROUPS, "ResourceConfig__InstanceGroups": [{**GROUP, "InstanceCount": 0}]}),
        "at 'resourceConfig.instanceGroups.1.member.instanceCount'",
    ),
    (with_(InputDataConfig=[channel("a"), channel("a")]), "Channel names must be unique within a training job: [a]"),
    (with_(InputDataConfig=[{"ChannelName": "a", "DataSource": {}}]), "exactly one of S3DataSource"),
    (with_(InputDataConfig=[channel(CompressionType="Gzip")]), "Gzip is only supported in Pipe mode"),
    (with_(InputDataConfig=[channel(RecordWrapperType="RecordIO")]), "RecordIO is only supported in Pipe mode"),
    (with_(InputDataConfig=[channel(s3={"S3DataType": "AugmentedManifestFile"})]), "only supported in Pipe mode"),
    (with_(InputDataConfig=[channel(s3={"AttributeNames": ["a"]})]), "AttributeNames are only supported"),
    (with_(InputDataConfig=[channel(s3={"InstanceGroupNames": ["g1"]})]), "only be specified with ResourceConfig"),
    (
        with_(InputDataConfig=[channel(InputMode="FastFile", s3={"S3DataType": "ManifestFile"})]),
        "FastFile mode is only supported with S3DataType S3Prefix",
    ),
    (with_(InputDataConfig=[channel(s3={"S3Uri": "https://host/key"})]), "must have the form s3://bucket/prefix"),
    (with_(OutputDataConfig__S3OutputPath="https://x/y"), "S3 URI of OutputDataConfig.S3OutputPath"),
    (with_(CheckpointConfig={"S3Uri": "s3://b"}), "S3 URI of CheckpointConfig.S3Uri"),
    (with_(CheckpointConfig={"S3Uri": "s3://bkt/c", "LocalPath": "here"}), "must be an absolute path"),
    (with_(CheckpointConfig={"S3Uri": "s3://bkt/c", "LocalPath": "/opt/../etc"}), "must be an absolute path"),
    (with_(Tags=[{"Key": "aws:x", "Value": "a"}]), "aws: prefixed tag key names are not allowed"),
    (
        with_(AlgorithmSpecification__MetricDefinitions=[{"Name": "loss", "Regex": "loss=("}]),
        "The regular expression of metric 'loss' is not valid",
    ),
    (
        with_(AlgorithmSpecification__MetricDefinitions=[{"Name": "loss", "Regex": "loss=[0-9]+"}]),
        "captures nothing",
    ),
]


@pytest.mark.parametrize(("request_", "part"), OTHER_RULES)
def test_other_rules(request_: dict[str, Any], part: str) -> None:
    assert part in refusal(request_)


def test_a_channel_mode_overrides_the_jobs() -> None:
    """Gzip in a Pipe channel of a File job is legal (and Pipe is then refused in its own words)."""
    text = refusal(with_(InputDataConfig=[channel(InputMode="Pipe", CompressionType="Gzip")]))
    assert text.startswith("InputDataConfig[0].InputMode Pipe is not supported: ")


REFUSED = {
    "AlgorithmSpecification.TrainingInputMode Pipe": with_(AlgorithmSpecification__TrainingInputMode="Pipe"),
    "AlgorithmSpecification.TrainingInputMode FastFile": with_(AlgorithmSpecification__TrainingInputMode="FastFile"),
    "InputDataConfig[1].InputMode Pipe": with_(InputDataConfig=[channel("a"), channel("b", InputMode="Pipe")]),
    "InputDataConfig[0].InputMode FastFile": with_(InputDataConfig=[channel(InputMode="FastFile")]),
    "InputDataConfig[0].DataSource.FileSystemDataSource": with_(
        InputDataConfig=[
            {
                "ChannelName": "a",
                "DataSource": {
                    "FileSystemDataSource": {
                        "FileSystemId": "fs-0123456789",
                        "FileSystemAccessMode": "ro",
                        "FileSystemType": "EFS",
                        "DirectoryPath": "/a",
                    }
                },
            }
        ]
    ),
    "InputDataConfig[0].DataSource.DatasetSource": with_(
        InputDataConfig=[
            {
                "ChannelName": "a",
                "DataSource": {
                    "DatasetSource": {
                        "DatasetArn": "arn:aws:sagemaker:us-east-1:123456789012:hub-content/hub/DataSet/data"
                    }
                },
            }
        ]
    ),
    "InputDataConfig[0].DataSource.S3DataSource.HubAccessConfig": with_(
        InputDataConfig=[channel(s3={"HubAccessConfig": {"HubContentArn": "a"}})]
    ),
    "InputDataConfig[0].DataSource.S3DataSource.S3DataType Converse": with_(
        InputDataConfig=[channel(s3={"S3DataType": "Converse"})]
    ),
    "ResourceConfig.InstancePreferences": with_(
        ResourceConfig={"InstancePreferences": [{"InstanceType": "ml.m5.large", "InstanceCount": 1}]}
    ),
    "EnableManagedSpotTraining": with_(**SPOT),
    "ServerlessJobConfig": with_(
        ServerlessJobConfig={
            "BaseModelArn": "arn:aws:sagemaker:us-east-1:123456789012:hub-content/hub/Model/model",
            "JobType": "FineTuning",
        }
    ),
    "AlgorithmSpecification.AlgorithmName": with_(
        AlgorithmSpecification={"AlgorithmName": "alg", "TrainingInputMode": "File"}
    ),
}


@pytest.mark.parametrize(("place", "request_"), REFUSED.items())
def test_what_we_do_not_provide_is_refused_in_words(place: str, request_: dict[str, Any]) -> None:
    assert refusal(request_).startswith(f"{place} is not supported: ")


def test_every_refusal_of_the_table_is_tried() -> None:
    tried = {place.replace("[0]", "[]").replace("[1]", "[]") for place in REFUSED}
    rows = [row for row in support.TABLE if row.treatment is support.Treatment.REFUSED]
    assert {f"{row.member} {row.value}" if row.value else row.member for row in rows} == tried


def test_notices_name_what_is_not_acted_on() -> None:
    assert validate("CreateTrainingJob", BASE) == []
    request = with_(
        ResourceConfig__KeepAlivePeriodInSeconds=600,
        VpcConfig={"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]},
        OutputDataConfig__KmsKeyId="",
        EnableInterContainerTrafficEncryption=False,
        InputDataConfig=[channel("a", ShuffleConfig={"Seed": 1}), channel("b", ShuffleConfig={"Seed": 2})],
    )
    assert validate("CreateTrainingJob", request) == [
        "VpcConfig is accepted but not acted on: the job runs in the network of this installation.",
        "InputDataConfig[].ShuffleConfig is accepted but not acted on: files are copied whole, their order has no"
        " meaning.",
    ]


def test_unknown_members_are_refused_by_name_or_noted() -> None:
    request = with_(AlgorithmSpecification__MetricDefinitons=[], Zzz=1, InputDataConfig=[channel("a", ChanelName="x")])
    text = refusal(request)
    assert "'AlgorithmSpecification.MetricDefinitons' (did you mean 'MetricDefinitions'?)" in text
    assert "'InputDataConfig.1.ChanelName' (did you mean 'ChannelName'?)" in text
    assert "'Zzz'" in text
    notices = validate("CreateTrainingJob", request, strict=False)
    assert "An unknown member was ignored: 'Zzz'." in notices
    assert len(notices) == 3
    with pytest.raises(ApiError, match="did you mean 'TrainingJobName'"):
        validate("DescribeTrainingJob", {"TrainingJobName": "a", "TrainingJobNam": "b"})


def test_many_unknown_members_make_a_short_error() -> None:
    text = refusal({**BASE, **{f"Unknown{number}" + "x" * 500: 1 for number in range(1000)}})
    assert "and 980 more" in text
    assert len(text) < 10_000


def test_the_document_lists_what_the_table_says() -> None:
    document = (Path(__file__).parents[3] / "docs" / "api.md").read_text()
    for row in support.TABLE:
        shown = f"`{row.member}`" + (f" = `{row.value}`" if row.value else "")
        assert f"| {shown} | {row.text} |" in document, row.member


VALID = with_(
    InputDataConfig=[channel("a"), channel("b", InputMode="File")],
    HyperParameters={"a": "1"},
    Environment={"A": "b"},
    Tags=[{"Key": "k", "Value": "v"}],
    CheckpointConfig={"S3Uri": "s3://bucket/c", "LocalPath": "/opt/ml/checkpoints"},
    AlgorithmSpecification__MetricDefinitions=[{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
    VpcConfig={"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]},
    RetryStrategy={"MaximumRetryAttempts": 2},
)

json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=20)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(st.text(max_size=8), st.sampled_from(["ChannelName", "S3DataSource", "Key", "InstanceType"])),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=8,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += places(item, (*path, key))
    return found


@settings(max_examples=examples(60))
@given(data=st.data(), operation=st.just("CreateTrainingJob"))
def test_damaged_requests_never_raise_anything_else(data: st.DataObject, operation: str) -> None:
    request = copy.deepcopy(VALID)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(places(request)))
        holder = request
        for key in path[:-1]:
            holder = holder[key]
        if data.draw(st.booleans()) or not isinstance(holder, dict):
            holder[path[-1]] = data.draw(json_values)
        else:
            del holder[path[-1]]
        if not places(request):
            break
    for strict in (True, False):
        try:
            validate(operation, request, strict=strict)
        except ApiError as error:
            assert error.status == 400
            assert error.code in ("ValidationException", "SerializationException")
            json.dumps(error.message)


@settings(max_examples=examples(50))
@given(operation=st.sampled_from(sorted(OPERATIONS)), request_=json_values)
def test_garbage_never_raises_anything_else(operation: str, request_: Any) -> None:
    try:
        validate(operation, request_)
    except ApiError as error:
        assert error.status == 400


def test_the_whole_valid_request_is_accepted() -> None:
    assert validate("CreateTrainingJob", VALID) == [
        "VpcConfig is accepted but not acted on: the job runs in the network of this installation."
    ]
