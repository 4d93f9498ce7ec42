"""A sharded-data-parallel degree that does not divide the job's ranks is refused before the job is stored."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.sagemaker.test_rules import DELETE, refusal, with_
from trainshed_service.sagemaker import validate

GROUP = {"InstanceGroupName": "g1", "InstanceType": "ml.p4d.24xlarge", "InstanceCount": 4}


def job(degree: Any, count: int = 2, processes: str | None = "8", mpi: str = "true", **more: Any) -> dict[str, Any]:
    hyperparameters = {
        "mp_parameters": json.dumps({"ddp": True, "sharded_data_parallel_degree": degree}),
        "sagemaker_mpi_enabled": mpi,
        **({"sagemaker_mpi_num_of_processes_per_host": processes} if processes else {}),
    }
    resources = {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": count}
    return with_(ResourceConfig=resources, HyperParameters=hyperparameters, **more)


@pytest.mark.parametrize("degree", [1, 2, 4, 8, 16, "16"])
def test_divisors_are_accepted(degree: object) -> None:
    validate("CreateTrainingJob", job(degree))


def test_the_refusal_proposes_degrees() -> None:
    assert refusal(job(12)) == (
        "HyperParameters.mp_parameters: sharded_data_parallel_degree 12 does not divide the number of ranks: "
        "2 instances of 8 processes make 16 ranks; use 4, 8 or 16."
    )
    assert "32 is more than there are ranks: 2 instances of 8 processes make 16 ranks" in refusal(job(32))
    assert "must be a whole number" in refusal(job(True))
    assert "1 instance of 1 process makes 1 rank; only 1 is possible" in refusal(job(2, count=1, processes="1"))


def test_processes_default_to_the_devices_of_the_type() -> None:
    validate("CreateTrainingJob", job(16, processes=None))
    assert "2 instances of 8 processes" in refusal(job(32, processes=None))


@pytest.mark.parametrize("twice", [False, True])
def test_both_sdks_spellings_are_read(twice: bool) -> None:
    request = job(12)
    values = request["HyperParameters"]
    values["sagemaker_mpi_enabled"] = "True" if twice else "true"
    if twice:
        values["mp_parameters"] = json.dumps(values["mp_parameters"])
        values["sagemaker_mpi_num_of_processes_per_host"] = '"8"'
    assert "use 4, 8 or 16" in refusal(request)


def test_only_the_named_groups_take_part() -> None:
    other = {**GROUP, "InstanceGroupName": "g2", "InstanceCount": 3}
    request = job(32)
    request["ResourceConfig"] = {"InstanceGroups": [GROUP, other]}
    assert "7 instances of 8 processes make 56 ranks" in refusal(request)
    request["HyperParameters"]["sagemaker_distribution_instance_groups"] = '["g1"]'
    validate("CreateTrainingJob", request)
    request["HyperParameters"]["sagemaker_distribution_instance_groups"] = "[1"
    assert "56 ranks" in refusal(request)


def test_what_cannot_be_known_is_left_to_the_script() -> None:
    validate("CreateTrainingJob", job(12, mpi="false"))
    for text in ("{", "[]", '"a=1"', "[" * 5000, "null"):
        request = job(12)
        request["HyperParameters"]["mp_parameters"] = text[:2500]
        validate("CreateTrainingJob", request)
    mixed = job(12, processes=None)
    mixed["ResourceConfig"] = {
        "InstanceGroups": [GROUP, {**GROUP, "InstanceGroupName": "g2", "InstanceType": "ml.m5.large"}]
    }
    validate("CreateTrainingJob", mixed)
    validate("CreateTrainingJob", with_(HyperParameters=DELETE))
