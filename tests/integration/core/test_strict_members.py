"""TRAINSHED_STRICT_MEMBERS: members that the model does not know are refused over the AWS wire too."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.integration.core.driving import request
from tests.support.api_process import ApiProcess


def post(api: ApiProcess, operation: str, body: dict[str, Any]) -> httpx.Response:
    """A signed call of raw JSON: clients know the model and would not send it."""
    headers = {"X-Amz-Target": f"SageMaker.{operation}", "Content-Type": "application/x-amz-json-1.1"}
    signed = AWSRequest("POST", api.url + "/", data=json.dumps(body).encode(), headers=headers)
    admin = api.bootstrap.admin
    SigV4Auth(Credentials(admin.access_key_id, admin.secret_access_key), "sagemaker", "us-east-1").add_auth(signed)
    prepared = signed.prepare()
    return httpx.post(prepared.url, content=prepared.body, headers=dict(prepared.headers), trust_env=False, timeout=30)


def test_unknown_members_are_refused_where_the_switch_is_set(start_api: Callable[..., ApiProcess]) -> None:
    api = start_api(strict_members="true")
    refused = post(api, "CreateTrainingJob", request("strict", metric_definitons=[], StoppingCondition={
        "MaxRuntimeInSeconds": 60, "MaxRuntimeInSecond": 1,
    }))  # fmt: skip
    assert (refused.status_code, refused.json()["__type"].rpartition("#")[2]) == (400, "ValidationException")
    assert "'metric_definitons'" in refused.json()["message"]
    assert "'StoppingCondition.MaxRuntimeInSecond' (did you mean 'MaxRuntimeInSeconds'?)" in refused.json()["message"]
    described = post(api, "DescribeTrainingJob", {"TrainingJobName": "strict"})
    assert described.json()["message"] == "Requested resource not found."
    assert (
        post(api, "DescribeTrainingJob", {"TrainingJobName": "strict", "x": 1})
        .json()["message"]
        .startswith("Unknown members in the request: 'x'")
    )
    assert post(api, "CreateTrainingJob", request("strict")).status_code == 200
