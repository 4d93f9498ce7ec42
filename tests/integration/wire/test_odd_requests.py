"""Signed requests with any body and any operation name: a well-formed answer below 500, and no operation runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.integration.wire.serving import REGION, Served, serving
from tests.support.depth import examples
from trainshed_service import iam, sagemaker, sts
from trainshed_service.wire import Context

ran: list[str] = []


async def create_training_job(ctx: Context, request: dict[str, Any]) -> dict[str, Any]:
    ran.append(request["TrainingJobName"])
    return {"TrainingJobArn": "a"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    operations = {
        "sagemaker": {**sagemaker.OPERATIONS, "CreateTrainingJob": create_training_job},
        "sts": sts.OPERATIONS,
        "iam": iam.OPERATIONS,
    }
    with serving(tmp_path_factory.mktemp("home"), operations) as running:
        yield running


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=30) as client:
        yield client


def post(served: Served, client: httpx.Client, service: str, body: bytes, headers: dict[str, str]) -> httpx.Response:
    request = AWSRequest("POST", served.url + "/", data=body, headers=headers)
    SigV4Auth(served.credentials, service, REGION).add_auth(request)
    return client.post(served.url + "/", content=body, headers=dict(request.prepare().headers))


MEMBERS = ["TrainingJobName", "RoleArn", "ResourceConfig", "Tags", "x"]
FIELDS = ["Action", "RoleName", "ActionNames.member.1", "ActionNames", "PolicySourceArn", "Marker", ".", "x"]

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=10)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["TrainingJobName", "RoleArn", "ResourceConfig", "Tags", "x"]), inner, max_size=4
        ),
    ),
    max_leaves=10,
)
bodies = st.one_of(st.binary(max_size=60), values.map(lambda value: json.dumps(value).encode()))
words = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=12)
names = st.one_of(st.sampled_from(sorted(sagemaker.OPERATIONS)), words)


@settings(max_examples=examples(100))
@given(body=bodies, name=names)
def test_json(served: Served, client: httpx.Client, body: bytes, name: str) -> None:
    ran.clear()
    headers = {"X-Amz-Target": f"SageMaker.{name}", "Content-Type": "application/x-amz-json-1.1"}
    if name in sagemaker.OPERATIONS and name != "CreateTrainingJob":
        headers["X-Amz-Target"] = f"SageMaker.No{name}"
    answer = post(served, client, "sagemaker", body, headers)
    assert answer.status_code == 400
    error = answer.json()
    assert error["__type"] in ("SerializationException", "ValidationException", "UnknownOperationException")
    assert error["message"] and answer.headers["x-amzn-requestid"]
    assert ran == []


@settings(max_examples=examples(60))
@given(
    body=st.one_of(
        st.binary(max_size=60),
        st.dictionaries(
            st.sampled_from(
                ["Action", "RoleName", "ActionNames.member.1", "ActionNames", "PolicySourceArn", "Marker", ".", "x"]
            ),
            st.one_of(st.sampled_from(["GetRole", "ListRoles", "SimulatePrincipalPolicy"]), st.text(max_size=8)),
        ).map(lambda fields: str(httpx.QueryParams(fields)).encode()),
    )
)
def test_query(served: Served, client: httpx.Client, body: bytes) -> None:
    answer = post(served, client, "iam", body, {"Content-Type": "application/x-www-form-urlencoded"})
    root = ElementTree.fromstring(answer.content)
    assert answer.status_code in (200, 400, 404)
    if answer.status_code == 200:
        assert root.tag.endswith("ListRolesResponse")
    else:
        assert root.tag.endswith("ErrorResponse")
        assert root.find(".//{*}Code") is not None and root.find("{*}RequestId") is not None
