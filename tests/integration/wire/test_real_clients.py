"""boto3 against the live application: framing of requests, results and errors of every protocol."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import ClientError

from tests.integration.wire.serving import REGION, Served, serving
from trainshed_service import iam, sts
from trainshed_service.clock import ManualClock
from trainshed_service.identity import DEFAULT_ROLE, Credentials, job_policy
from trainshed_service.wire import ApiError, Context

NOW = 1_800_000_000.25


async def describe_training_job(ctx: Context, request: dict[str, Any]) -> dict[str, Any]:
    if request["TrainingJobName"] == "broken":
        raise RuntimeError("a fault of ours")
    if request["TrainingJobName"] == "missing":
        raise ApiError("ValidationException", "Requested resource not found.")
    return {"TrainingJobName": request["TrainingJobName"], "CreationTime": NOW, "SecondaryStatusTransitions": []}


async def stop_training_job(ctx: Context, request: dict[str, Any]) -> None:
    return None


async def list_training_jobs(ctx: Context, request: dict[str, Any]) -> dict[str, Any]:
    """Shows what came: times as numbers, no nulls."""
    assert all(value is not None for value in request.values())
    after = request.get("CreationTimeAfter", 0.0)
    summary = {"TrainingJobName": str(float(after)), "TrainingJobArn": "a", "CreationTime": NOW}
    return {"TrainingJobSummaries": [summary]}


async def get_metric_statistics(ctx: Context, request: dict[str, Any]) -> dict[str, Any]:
    return {
        "Label": f"{request['MetricName']} <&> {request['Dimensions'][0]['Value']}",
        "Datapoints": [{"Timestamp": request["StartTime"], "Average": 0.5, "Unit": "None"}],
    }


async def list_metrics(ctx: Context, request: dict[str, Any]) -> dict[str, Any]:
    raise ApiError("InvalidParameterValue", "no such <metric> \0 & namespace")


OPERATIONS = {
    "sagemaker": {
        "DescribeTrainingJob": describe_training_job,
        "ListTrainingJobs": list_training_jobs,
        "StopTrainingJob": stop_training_job,
    },
    "cloudwatch": {"GetMetricStatistics": get_metric_statistics, "ListMetrics": list_metrics},
    "logs": {},
    "sts": sts.OPERATIONS,
    "iam": iam.OPERATIONS,
}


async def s3_stand_in(scope: Any, receive: Any, send: Any) -> None:
    body = b"<ListAllMyBucketsResult><Buckets></Buckets></ListAllMyBucketsResult>"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-path", scope["raw_path"])]})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("home"), OPERATIONS, s3=s3_stand_in) as running:
        yield running


def error_of(call: Any, **request: Any) -> tuple[str, str, int]:
    with pytest.raises(ClientError) as caught:
        call(**request)
    response = caught.value.response
    assert response["ResponseMetadata"]["RequestId"]
    return (
        response["Error"]["Code"],
        response["Error"]["Message"],
        response["ResponseMetadata"]["HTTPStatusCode"],
    )


def post(served: Served, body: bytes, headers: dict[str, str], service: str = "sagemaker") -> httpx.Response:
    """A signed request with exactly this body."""
    request = AWSRequest("POST", served.url + "/", data=body, headers=headers)
    SigV4Auth(served.credentials, service, REGION).add_auth(request)
    return httpx.post(served.url + "/", content=body, headers=dict(request.prepare().headers), timeout=30)


JSON = {"X-Amz-Target": "SageMaker.DescribeTrainingJob", "Content-Type": "application/x-amz-json-1.1"}


def test_json_result_and_request_id(served: Served) -> None:
    job = served.client("sagemaker").describe_training_job(TrainingJobName="a-job")
    assert job["TrainingJobName"] == "a-job"
    assert job["CreationTime"].timestamp() == NOW
    assert len(job["ResponseMetadata"]["RequestId"]) == 36


def test_operation_without_output_has_an_empty_body(served: Served) -> None:
    answer = post(served, b'{"TrainingJobName":"a"}', JSON | {"X-Amz-Target": "SageMaker.StopTrainingJob"})
    assert (answer.status_code, answer.content) == (200, b"")
    served.client("sagemaker").stop_training_job(TrainingJobName="a")


def test_times_reach_the_operation_as_epoch_seconds(served: Served) -> None:
    for given in ("1800000000.5", '"2027-01-15T08:00:00.5Z"'):
        body = b'{"CreationTimeAfter": %s, "NameContains": null}' % given.encode()
        answer = post(served, body, JSON | {"X-Amz-Target": "SageMaker.ListTrainingJobs"})
        assert answer.json()["TrainingJobSummaries"][0]["TrainingJobName"] == "1800000000.5"


def test_operation_errors(served: Served) -> None:
    client = served.client("sagemaker")
    assert error_of(client.describe_training_job, TrainingJobName="missing") == (
        "ValidationException",
        "Requested resource not found.",
        400,
    )
    code, message, status = error_of(client.describe_training_job, TrainingJobName="broken")
    assert (code, status) == ("InternalFailure", 500)
    assert "fault of ours" not in message


def test_model_constraints_are_checked(served: Served) -> None:
    code, message, status = error_of(served.client("sagemaker").describe_training_job, TrainingJobName="a b")
    assert (code, status) == ("ValidationException", 400)
    assert message.startswith("1 validation error detected: Value 'a b' at 'trainingJobName' failed to satisfy")


def test_unknown_operations_are_named(served: Served) -> None:
    code, message, status = error_of(served.client("sagemaker").list_endpoints)
    assert (code, status) == ("UnknownOperationException", 400)
    assert "ListEndpoints" in message
    code, message, _ = error_of(served.client("iam").list_users)
    assert code == "InvalidAction"
    assert "ListUsers" in message
    code, message, _ = error_of(served.client("events").list_rules)
    assert code == "UnknownOperationException"
    assert "AWSEvents.ListRules" in message
    metrics = served.client("sagemaker-metrics")
    code, message, _ = error_of(
        metrics.batch_put_metrics,
        TrialComponentName="a",
        MetricData=[{"MetricName": "m", "Timestamp": 1, "Value": 1.0}],
    )
    assert code == "UnknownOperationException"
    assert "PUT /BatchPutMetrics" in message


@pytest.mark.parametrize(
    ("body", "part"),
    [
        (b"{", "not valid JSON"),
        (b"[]", "must be an object"),
        (b'"text"', "must be an object"),
        (b'{"TrainingJobName": NaN}', "NaN"),
        (b'{"TrainingJobName": 5}', "NUMBER_VALUE can not be converted to a string at 'trainingJobName'"),
        (b'{"TrainingJobName": "\\ud800"}', "UTF-8"),
        (b'{"TrainingJobName": "\xff"}', "UTF-8"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "nested too deeply"),
        (b'{"a": ' + b"1" * 5000 + b"}", "not valid JSON"),
    ],
)
def test_bodies_that_are_no_request(served: Served, body: bytes, part: str) -> None:
    answer = post(served, body, JSON)
    assert answer.status_code == 400
    assert answer.json()["__type"] == "SerializationException"
    assert part in answer.json()["message"]
    assert answer.headers["x-amzn-requestid"]


def test_bodies_above_the_limit(served: Served) -> None:
    answer = post(served, b" " * (5 * 1024 * 1024), JSON)
    assert answer.status_code == 413
    assert answer.json()["__type"] == "RequestEntityTooLargeException"


def test_json_1_0_and_query_mode(served: Served) -> None:
    client = served.client("cloudwatch")
    result = client.get_metric_statistics(
        Namespace="/aws/sagemaker/TrainingJobs",
        MetricName="loss",
        Dimensions=[{"Name": "TrainingJobName", "Value": "a"}],
        StartTime=NOW,
        EndTime=NOW + 60,
        Period=60,
        Statistics=["Average"],
    )
    assert result["Datapoints"][0]["Average"] == 0.5
    assert abs(result["Datapoints"][0]["Timestamp"].timestamp() - NOW) < 1
    code, _, _ = error_of(client.list_metrics)
    assert code == "InvalidParameterValue"
    target = {"X-Amz-Target": "GraniteServiceVersion20100801.ListMetrics"}
    headers = {"Content-Type": "application/x-amz-json-1.0", "x-amzn-query-mode": "true"}
    answer = post(served, b"{}", target | headers, "monitoring")
    assert answer.headers["x-amzn-query-error"] == "InvalidParameterValue;Sender"
    assert answer.headers["content-type"] == "application/x-amz-json-1.0"


def form(served: Served, fields: dict[str, str], service: str = "monitoring") -> httpx.Response:
    body = httpx.QueryParams(fields).__str__().encode()
    return post(served, body, {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}, service)


def test_cloudwatch_over_query_and_xml(served: Served) -> None:
    """What the AWS CLI version 2 sends."""
    answer = form(
        served,
        {
            "Action": "GetMetricStatistics",
            "Version": "2010-08-01",
            "Namespace": "/aws/sagemaker/TrainingJobs",
            "MetricName": "loss",
            "Dimensions.member.1.Name": "TrainingJobName",
            "Dimensions.member.1.Value": "a",
            "StartTime": "2027-01-15T08:00:00Z",
            "EndTime": "2027-01-15T09:00:00Z",
            "Period": "60",
            "Statistics.member.1": "Average",
        },
    )
    assert answer.headers["content-type"] == "text/xml"
    assert "<Label>loss &lt;&amp;&gt; a</Label>" in answer.text
    assert "<member><Timestamp>2027-01-15T08:00:00.000Z</Timestamp><Average>0.5</Average>" in answer.text
    assert 'xmlns="http://monitoring.amazonaws.com/doc/2010-08-01/"' in answer.text


def test_query_errors(served: Served) -> None:
    failed = form(served, {"Action": "ListMetrics", "Version": "2010-08-01"})
    assert failed.status_code == 400
    assert "<Type>Sender</Type><Code>InvalidParameterValue</Code>" in failed.text
    assert "no such &lt;metric&gt; \N{REPLACEMENT CHARACTER} &amp; namespace" in failed.text
    bad = form(served, {"Action": "GetMetricStatistics", "Period": "x"})
    assert "<Code>SerializationException</Code>" in bad.text
    missing = form(served, {"Action": "GetMetricStatistics"})
    assert "<Code>ValidationError</Code>" in missing.text
    assert "at 'namespace' failed to satisfy constraint: Member must not be null" in missing.text
    assert "<Code>MissingAction</Code>" in form(served, {"Version": "1"}).text


def test_caller_identity_of_user_and_of_job(served: Served) -> None:
    account = served.bootstrap.account_id
    admin = served.client("sts").get_caller_identity()
    assert admin["Account"] == account
    assert admin["Arn"] == f"arn:aws:sts::{account}:assumed-role/{DEFAULT_ROLE}/admin"
    assert admin["UserId"].endswith(":admin")
    identity = served.services.identity
    policy = job_policy(read=[("data", "in/")], write=[("data", "out/job/")])
    credentials = served.services.database.write_sync(
        lambda session: identity.issue_job_key(session, "attempt-1", policy, time.time() + 600)
    )
    assert served.client("sts", credentials).get_caller_identity()["Arn"].endswith("/attempt-1")
    code, message, _ = error_of(served.client("sagemaker", credentials).describe_training_job, TrainingJobName="a-job")
    assert code == "AccessDeniedException"
    assert "sagemaker:DescribeTrainingJob" in message
    assert error_of(served.client("iam", credentials).list_roles)[0] == "AccessDenied"


def test_presigned_caller_identity(served: Served) -> None:
    for method in ("GET", "POST"):
        url = served.client("sts").generate_presigned_url("get_caller_identity", HttpMethod=method)
        answer = httpx.request(method, url)
        assert answer.status_code == 200
        assert f"<Account>{served.bootstrap.account_id}</Account>" in answer.text


def test_iam_roles(served: Served) -> None:
    client = served.client("iam")
    role = client.get_role(RoleName=DEFAULT_ROLE)["Role"]
    assert role["Arn"] == served.bootstrap.role_arn
    assert role["Path"] == "/service-role/"
    trust = role["AssumeRolePolicyDocument"]
    trust = json.loads(unquote(trust)) if isinstance(trust, str) else trust
    assert trust["Statement"][0]["Principal"] == {"Service": "sagemaker.amazonaws.com"}
    assert [r["RoleName"] for r in client.list_roles(PathPrefix="/service-role/")["Roles"]] == [DEFAULT_ROLE]
    assert client.list_roles(PathPrefix="/elsewhere/")["Roles"] == []
    code, message, status = error_of(client.get_role, RoleName="nobody")
    assert (code, message, status) == ("NoSuchEntity", "The role with name nobody cannot be found.", 404)


def test_iam_roles_are_paged(served: Served) -> None:
    identity, database = served.services.identity, served.services.database
    account = served.bootstrap.account_id
    for name in ("a", "b", "c"):
        arn = f"arn:aws:iam::{account}:role/paged/{name}"
        database.write_sync(lambda session, arn=arn: identity.ensure_role(session, arn))
    pages = (
        served.client("iam")
        .get_paginator("list_roles")
        .paginate(PathPrefix="/paged/", PaginationConfig={"PageSize": 2})
    )
    assert [[role["RoleName"] for role in page["Roles"]] for page in pages] == [["a", "b"], ["c"]]


def test_iam_simulation(served: Served) -> None:
    client = served.client("iam")
    result = client.simulate_principal_policy(
        PolicySourceArn=served.bootstrap.role_arn,
        ActionNames=["s3:PutObject", "ecr:*"],
        ResourceArns=["arn:aws:s3:::b/*", "arn:aws:s3:::c/*"],
    )
    assert len(result["EvaluationResults"]) == 4
    assert {entry["EvalDecision"] for entry in result["EvaluationResults"]} == {"allowed"}
    unknown = served.bootstrap.role_arn + "-x"
    assert (
        error_of(client.simulate_principal_policy, PolicySourceArn=unknown, ActionNames=["s3:*"])[0] == "NoSuchEntity"
    )
    code, _, _ = error_of(client.simulate_principal_policy, PolicySourceArn="a" * 30, ActionNames=["s3:*"])
    assert code == "InvalidInput"


def test_s3_requests_are_handed_on_untouched(served: Served) -> None:
    assert served.client("s3").list_buckets()["Buckets"] == []
    assert httpx.get(served.url + "/bucket/a%2Fb%20c?x=1").headers["x-path"] == "/bucket/a%2Fb%20c"


def test_wrong_credentials(served: Served) -> None:
    good = served.bootstrap.admin
    wrong_secret = Credentials(good.access_key_id, "x" * 40)
    unknown = Credentials("AKIAUNKNOWN000000000", "x" * 40)
    code, message, status = error_of(
        served.client("sagemaker", wrong_secret).describe_training_job, TrainingJobName="a"
    )
    assert (code, status) == ("InvalidSignatureException", 403)
    assert message.startswith("The request signature we calculated does not match the signature you provided.")
    code, message, _ = error_of(served.client("sagemaker", unknown).describe_training_job, TrainingJobName="a")
    assert (code, message) == (
        "UnrecognizedClientException",
        "The security token included in the request is invalid.",
    )
    assert error_of(served.client("sts", wrong_secret).get_caller_identity)[0] == "SignatureDoesNotMatch"
    assert error_of(served.client("sts", unknown).get_caller_identity)[0] == "InvalidClientTokenId"


def test_anonymous_and_foreign_scope(served: Served) -> None:
    answer = httpx.post(served.url, content=b"{}", headers=JSON)
    assert answer.json()["__type"] == "MissingAuthenticationTokenException"
    answer = post(served, b'{"TrainingJobName":"a"}', JSON, service="logs")
    assert answer.json()["__type"] == "InvalidSignatureException"
    assert "scoped to correct service: 'sagemaker'" in answer.json()["message"]


def test_skewed_clock(tmp_path: Path) -> None:
    with serving(tmp_path, OPERATIONS, clock=ManualClock(time.time() + 3600)) as ahead:
        code, message, _ = error_of(ahead.client("sagemaker").describe_training_job, TrainingJobName="a")
        assert code == "InvalidSignatureException"
        assert message.startswith("Signature expired: ")
