"""Generated bad CreateTrainingJob requests against the whole stack: each is a 4xx in AWS's form, nothing is stored.

A good request is spoiled in one or more places: members dropped, of another type, out of range, unknown words, nulls,
deep nests; bodies that are no JSON; over the AWS wire and over REST.
"""

import copy
import json
import random
from typing import Any

import httpx
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.jobs import job_request
from tests.support.stack import Stack

pytestmark = pytest.mark.timeout(300)
EXAMPLES = 300

JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.text(min_size=5000, max_size=6000),
    st.lists(st.none(), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
    st.sampled_from(["", " ", "../..", "s3://", "s3:///x", "arn:aws:iam::1:role/x", "ml.none", "$(id)", "\x00", "💥"]),
)


def good(stack: Stack) -> dict[str, Any]:
    request = job_request(stack, "acceptance-nothing", "never-stored", hyperparameters={"a": "1"})
    request["InputDataConfig"] = [
        {
            "ChannelName": "train",
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://acceptance-nothing/none"}},
        }
    ]
    request["Tags"] = [{"Key": "k", "Value": "v"}]
    request["RetryStrategy"] = {"MaximumRetryAttempts": 1}
    request["CheckpointConfig"] = {"S3Uri": "s3://acceptance-nothing/c"}
    return request


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(node, dict):
        for key, value in node.items():
            found += places(value, (*path, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            found += places(value, (*path, index))
    return found


def spoil(request: dict[str, Any], path: tuple[Any, ...], junk: Any, drop: bool) -> None:
    *parents, last = path
    node: Any = request
    for step in parents:
        if not isinstance(node, dict | list) or (isinstance(node, dict) and step not in node):
            return
        if isinstance(node, list) and (not isinstance(step, int) or step >= len(node)):
            return
        node = node[step]
    if isinstance(node, dict) and last in node:
        if drop:
            del node[last]
        else:
            node[last] = junk
    elif isinstance(node, list) and isinstance(last, int) and last < len(node):
        node[last] = junk


@st.composite
def spoilt(draw: st.DrawFn, request: dict[str, Any]) -> dict[str, Any]:
    changed = copy.deepcopy(request)
    for _ in range(draw(st.integers(0, 3))):
        spoil(changed, draw(st.sampled_from(places(request))), draw(JUNK), draw(st.booleans()))
    return changed


def test_bad_requests_are_refused_in_form_and_leave_nothing(stack: Stack):
    base = stack.env["AWS_ENDPOINT_URL"]
    credentials = Credentials(stack.env["AWS_ACCESS_KEY_ID"], stack.env["AWS_SECRET_ACCESS_KEY"])
    http = httpx.Client(base_url=base, timeout=30, trust_env=False)
    chooser = random.Random(0)
    seen: dict[int, int] = {}

    def over_aws(body: bytes) -> httpx.Response:
        headers = {"X-Amz-Target": "SageMaker.CreateTrainingJob", "Content-Type": "application/x-amz-json-1.1"}
        request = AWSRequest("POST", base + "/", data=body, headers=headers)
        SigV4Auth(credentials, "sagemaker", stack.env["AWS_REGION"]).add_auth(request)
        return http.post("/", content=body, headers=dict(request.prepare().headers))

    def over_rest(body: bytes) -> httpx.Response:
        headers = {"Authorization": f"Bearer {stack.env['TRAINSHED_TOKEN']}", "Content-Type": "application/json"}
        return http.post("/v1/training-jobs", content=body, headers=headers)

    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(request=spoilt(good(stack)), cut=st.integers(0, 40))
    def check(request: dict[str, Any], cut: int) -> None:
        body = json.dumps(request).encode()
        if cut == 1:
            body = body[: len(body) // 2]
        aws = chooser.random() < 0.5
        answer = (over_aws if aws else over_rest)(body)
        seen[answer.status_code] = seen.get(answer.status_code, 0) + 1
        assert 400 <= answer.status_code < 500, (answer.status_code, answer.text, request)
        said = answer.json()
        code, message = (said["__type"], said["message"]) if aws else (said["code"], said["message"])
        assert code and message
        assert "Traceback" not in answer.text

    def jobs() -> int:
        listed = stack.client("sagemaker").list_training_jobs(NameContains="never-stored", MaxResults=100)
        return len(listed["TrainingJobSummaries"])

    assert jobs() == 0
    check()
    assert sum(seen.values()) >= EXAMPLES
    assert jobs() == 0
    http.close()
