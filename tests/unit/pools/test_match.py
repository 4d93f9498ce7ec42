"""The match key against AWS's list of criteria: what must be equal, what is free."""

import copy
from typing import Any

import pytest

from trainshed_service.pools.match import differences, keep_alive_seconds, match_fields, match_key, may_keep_warm

REQUEST: dict[str, Any] = {
    "TrainingJobName": "a",
    "RoleArn": "arn:aws:iam::123456789012:role/R",
    "AlgorithmSpecification": {"TrainingImage": "image", "TrainingInputMode": "File"},
    "ResourceConfig": {
        "InstanceType": "ml.c5.xlarge",
        "InstanceCount": 2,
        "VolumeSizeInGB": 10,
        "KeepAlivePeriodInSeconds": 600,
    },
    "VpcConfig": {"SecurityGroupIds": ["sg-1", "sg-2"], "Subnets": ["subnet-1"]},
}


def with_(path: str, value: Any) -> dict[str, Any]:
    request = copy.deepcopy(REQUEST)
    *parents, last = path.split(".")
    holder = request
    for parent in parents:
        holder = holder.setdefault(parent, {})
    holder[last] = value
    return request


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("RoleArn", "arn:aws:iam::123456789012:role/S"),
        ("ResourceConfig.InstanceType", "ml.c5.2xlarge"),
        ("ResourceConfig.InstanceCount", 1),
        ("ResourceConfig.VolumeSizeInGB", 11),
        ("ResourceConfig.VolumeKmsKeyId", "key"),
        ("VpcConfig.SecurityGroupIds", ["sg-1"]),
        ("VpcConfig.Subnets", ["subnet-2"]),
        ("EnableInterContainerTrafficEncryption", True),
        ("EnableNetworkIsolation", True),
        ("SessionChainingConfig.EnableSessionTagChaining", True),
    ],
)
def test_each_criterion_alone_keeps_a_job_from_the_pool(path: str, value: Any) -> None:
    other = with_(path, value)
    assert match_key(other) != match_key(REQUEST)
    (difference,) = differences(match_fields(other), match_fields(REQUEST))
    assert difference.field == path
    assert difference.wanted != difference.has


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("TrainingJobName", "b"),
        ("AlgorithmSpecification.TrainingImage", "another"),
        ("HyperParameters", {"epochs": "3"}),
        ("Environment", {"A": "b"}),
        ("InputDataConfig", [{"ChannelName": "train"}]),
        ("OutputDataConfig", {"S3OutputPath": "s3://elsewhere/"}),
        ("ResourceConfig.KeepAlivePeriodInSeconds", 0),
        ("StoppingCondition", {"MaxRuntimeInSeconds": 60}),
        ("VpcConfig.SecurityGroupIds", ["sg-2", "sg-1"]),
        ("EnableNetworkIsolation", False),
        ("SessionChainingConfig", {"EnableSessionTagChaining": False}),
    ],
)
def test_all_else_is_free(path: str, value: Any) -> None:
    other = with_(path, value)
    assert match_key(other) == match_key(REQUEST)
    assert differences(match_fields(other), match_fields(REQUEST)) == []


def test_spot_and_heterogeneous_clusters_have_no_pool() -> None:
    assert may_keep_warm(REQUEST) and keep_alive_seconds(REQUEST) == 600
    assert match_key(with_("EnableManagedSpotTraining", True)) is None
    groups = {"InstanceGroups": [{"InstanceType": "ml.c5.xlarge", "InstanceCount": 1, "InstanceGroupName": "g"}]}
    assert match_key({**REQUEST, "ResourceConfig": groups}) is None
    assert keep_alive_seconds({**REQUEST, "ResourceConfig": groups}) == 0
