"""Requests that real clients sent: each satisfies the model and is accepted, or refused for what we mean to refuse."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from trainshed_service import cloudwatch, cloudwatch_logs, iam, sagemaker, sts
from trainshed_service.sagemaker import validate
from trainshed_service.wire import constraints, query_protocol
from trainshed_service.wire.errors import ApiError
from trainshed_service.wire.models import operation_model
from trainshed_service.wire.service_table import BY_SIGNING_NAME

FOLDER = Path(__file__).parents[2] / "support" / "traces"
OURS: dict[str, Any] = {
    "sagemaker": sagemaker.OPERATIONS,
    "logs": cloudwatch_logs.OPERATIONS,
    "monitoring": cloudwatch.OPERATIONS,
    "sts": sts.OPERATIONS,
    "iam": iam.OPERATIONS,
}
NOT_OURS = {
    "BatchPutMetrics", "CreateExperiment", "CreateTrial", "CreateTrialComponent", "AssociateTrialComponent",
    "UpdateTrialComponent", "CreateHyperParameterTuningJob", "DescribeHyperParameterTuningJob",
    "StopHyperParameterTuningJob", "ListTrainingJobsForHyperParameterTuningJob", "ListAssociations",
    "DescribeTrialComponent", "DescribeExperiment", "DescribeTrial",
}  # fmt: skip


def recorded() -> list[tuple[str, dict[str, Any]]]:
    found = []
    for file in sorted(FOLDER.glob("*.json")):
        for index, call in enumerate(json.loads(file.read_text())):
            if call["service"] in OURS:
                found.append((f"{file.stem}-{index}-{call['op']}", call))
    return found


CALLS = recorded()


def parse(call: Mapping[str, Any]) -> dict[str, Any]:
    """The request as the dispatcher would hand it to validation."""
    body = call.get("body") or {}
    if "Action" in body:
        model = operation_model(BY_SIGNING_NAME[call["service"]].name, call["op"])
        assert model is not None
        request, unknown = query_protocol.decode(body, model.input_shape)
        assert unknown == []
        return request
    return dict(body)


@pytest.mark.parametrize(("name", "call"), CALLS, ids=[name for name, _ in CALLS])
def test_each_call_is_known_and_satisfies_the_model(name: str, call: dict[str, Any]) -> None:
    if call["op"] in NOT_OURS:
        assert call["op"] not in OURS[call["service"]]
        return
    assert call["op"] in OURS[call["service"]]
    service = BY_SIGNING_NAME[call["service"]].name
    report = constraints.validator(service, call["op"]).check(parse(call))
    assert report.violations == []
    assert report.unknown == []


CREATES = [(name, call) for name, call in CALLS if call["op"] == "CreateTrainingJob"]


@pytest.mark.parametrize(("name", "call"), CREATES, ids=[name for name, _ in CREATES])
def test_each_job_is_accepted_or_refused_for_what_it_names(name: str, call: dict[str, Any]) -> None:
    request = call["body"]
    modes = {channel.get("InputMode") for channel in request.get("InputDataConfig") or []}
    modes.add(request["AlgorithmSpecification"]["TrainingInputMode"])
    reason = None
    if modes & {"Pipe", "FastFile"}:
        reason = "input mode is not provided"
    elif request.get("EnableManagedSpotTraining"):
        reason = "managed spot training is not provided"
    if reason is None:
        assert all("accepted but not acted on" in notice for notice in validate("CreateTrainingJob", request))
    else:
        with pytest.raises(ApiError, match=reason):
            validate("CreateTrainingJob", request)


def test_there_are_recordings_of_every_client() -> None:
    clients = {name.split("_")[0] for name, _ in CALLS}
    assert clients >= {"cli", "cli2", "sm2", "sm3", "syne"}
    assert len(CREATES) >= 20
