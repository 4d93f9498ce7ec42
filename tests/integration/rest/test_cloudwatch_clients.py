"""CloudWatch Logs and CloudWatch through boto3, and the query protocol as the AWS CLI 2.9 sends it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import botocore.auth
import botocore.awsrequest
import botocore.credentials
import httpx
import pytest
from botocore.exceptions import ClientError

from tests.integration.rest.conftest import Rest

GROUP = "/aws/sagemaker/TrainingJobs"
NAMESPACE = GROUP
START = 1_790_000_000


@pytest.fixture(scope="module")
def job(rest: Rest) -> str:
    rest.place("watched")
    rest.ship("watched", "algo-1", [f"step {seq} loss=0.{seq}" for seq in range(250)], ms=START * 1_000)
    rest.ship("watched", "algo-2", ["hello", "ERROR: no"], ms=START * 1_000 + 500)
    points = [
        {"name": "loss", "value": float(step), "timestamp_ms": (START + step) * 1_000, "seq": step}
        for step in range(180)
    ]
    rest.ship_points("watched", "algo-1", points)
    host = {"name": "CPUUtilization", "value": 50.0, "timestamp_ms": START * 1_000, "host": "algo-1"}
    rest.ship_points("watched", "algo-1", [host])
    return "watched"


def refused(call: Any, **parameters: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as error:
        call(**parameters)
    return error.value.response["Error"]["Code"], error.value.response["Error"]["Message"]


def test_the_log_tail_of_the_sagemaker_sdk(rest: Rest, job: str) -> None:
    """DescribeLogStreams for the job, then GetLogEvents with the last token until it repeats."""
    logs = rest.service.client("logs")
    streams = logs.describe_log_streams(
        logGroupName=GROUP, logStreamNamePrefix=f"{job}/", orderBy="LogStreamName", limit=2
    )
    names = [stream["logStreamName"] for stream in streams["logStreams"]]
    assert [name.rsplit("-", 1)[0] for name in names] == ["watched/algo-1", "watched/algo-2"]
    assert "nextToken" not in streams
    texts: list[str] = []
    token: dict[str, str] = {}
    while True:
        page = logs.get_log_events(
            logGroupName=GROUP, logStreamName=names[0], startTime=0, startFromHead=True, limit=100, **token
        )
        texts += [event["message"] for event in page["events"]]
        if page["nextForwardToken"] == token.get("nextToken"):
            break
        token = {"nextToken": page["nextForwardToken"]}
    assert texts == [f"step {seq} loss=0.{seq}" for seq in range(250)]


def test_filter_log_events_as_logs_tail_does(rest: Rest, job: str) -> None:
    logs = rest.service.client("logs")
    pages = logs.get_paginator("filter_log_events").paginate(
        logGroupName=GROUP, logStreamNamePrefix=job, interleaved=True, PaginationConfig={"PageSize": 60}
    )
    events = [event for page in pages for event in page["events"]]
    assert len(events) == len({event["eventId"] for event in events}) == 252
    stamps = [event["timestamp"] for event in events]
    assert stamps == sorted(stamps)
    found = logs.filter_log_events(logGroupName=GROUP, filterPattern="ERROR")["events"]
    assert [event["message"] for event in found if event["logStreamName"].startswith(job)] == ["ERROR: no"]


def test_the_group_is_always_there_and_others_are_not(rest: Rest) -> None:
    logs = rest.service.client("logs")
    assert [group["logGroupName"] for group in logs.describe_log_groups()["logGroups"]] == [GROUP]
    assert logs.describe_log_groups(logGroupNamePrefix="/other")["logGroups"] == []
    assert logs.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix="nobody/")["logStreams"] == []
    for call, more in (
        (logs.describe_log_streams, {}),
        (logs.get_log_events, {"logStreamName": "x"}),
        (logs.filter_log_events, {}),
    ):
        assert refused(call, logGroupName="/other", **more)[0] == "ResourceNotFoundException"
    code, message = refused(logs.get_log_events, logGroupName=GROUP, logStreamName="nobody")
    assert (code, message) == ("ResourceNotFoundException", "The specified log stream does not exist.")


@pytest.mark.parametrize(
    ("operation", "parameters", "words"),
    [
        ("describe_log_streams", {"logStreamNamePrefix": "a", "orderBy": "LastEventTime"}, "Cannot order by"),
        ("describe_log_streams", {"limit": 51}, "less than or equal to 50"),
        ("describe_log_streams", {"nextToken": "x"}, "nextToken"),
        ("get_log_events", {"logStreamName": "a:b"}, "regular expression"),
        ("filter_log_events", {"filterPattern": "{ $.a = 1 }"}, "JSON"),
        ("filter_log_events", {"logStreamNames": ["a"], "logStreamNamePrefix": "a"}, "mutually exclusive"),
        ("filter_log_events", {"startTime": 2, "endTime": 1}, "startTime"),
    ],
)
def test_what_is_wrong_is_an_invalid_parameter(
    rest: Rest, operation: str, parameters: dict[str, Any], words: str
) -> None:
    code, message = refused(getattr(rest.service.client("logs"), operation), logGroupName=GROUP, **parameters)
    assert code == "InvalidParameterException"
    assert words in message


def test_metric_statistics_as_the_sdk_asks_for_them(rest: Rest, job: str) -> None:
    cloudwatch = rest.service.client("cloudwatch")
    asked = {
        "Namespace": NAMESPACE,
        "MetricName": "loss",
        "Dimensions": [{"Name": "TrainingJobName", "Value": job}],
        "StartTime": datetime.fromtimestamp(START - START % 60, UTC),
        "EndTime": datetime.fromtimestamp(START + 600, UTC),
        "Period": 60,
    }
    answer = cloudwatch.get_metric_statistics(**asked, Statistics=["Average", "SampleCount", "Maximum"])
    assert answer["Label"] == "loss"
    points = sorted(answer["Datapoints"], key=lambda point: point["Timestamp"])
    assert sum(point["SampleCount"] for point in points) == 180
    assert max(point["Maximum"] for point in points) == 179.0
    assert all(point["Timestamp"].second == 0 and point["Unit"] == "None" for point in points)
    extended = cloudwatch.get_metric_statistics(**asked, ExtendedStatistics=["p50"])["Datapoints"]
    assert all(set(point["ExtendedStatistics"]) == {"p50"} for point in extended)
    nothing = cloudwatch.get_metric_statistics(**asked | {"Namespace": "AWS/EC2"}, Statistics=["Sum"])
    assert nothing["Datapoints"] == []
    assert refused(cloudwatch.get_metric_statistics, **asked)[0] == "MissingParameter"
    assert refused(cloudwatch.get_metric_statistics, **asked | {"Period": 61}, Statistics=["Sum"])[0] == (
        "InvalidParameterValue"
    )


def test_metric_data_pages_give_each_point_once(rest: Rest, job: str) -> None:
    cloudwatch = rest.service.client("cloudwatch")
    metric = {"Namespace": NAMESPACE, "MetricName": "loss", "Dimensions": [{"Name": "TrainingJobName", "Value": job}]}
    for order in ("TimestampDescending", "TimestampAscending"):
        pages = cloudwatch.get_paginator("get_metric_data").paginate(
            MetricDataQueries=[
                {"Id": "fine", "MetricStat": {"Metric": metric, "Period": 1, "Stat": "Sum"}},
                {"Id": "coarse", "MetricStat": {"Metric": metric, "Period": 60, "Stat": "Average"}},
            ],
            StartTime=START - START % 60,
            EndTime=START + 600,
            ScanBy=order,
            MaxDatapoints=100,
        )
        found: dict[str, list[tuple[datetime, float]]] = {"fine": [], "coarse": []}
        for page in pages:
            for result in page["MetricDataResults"]:
                found[result["Id"]] += zip(result["Timestamps"], result["Values"], strict=True)
        assert sorted(value for _, value in found["fine"]) == [float(step) for step in range(180)]
        stamps = [stamp for stamp, _ in found["fine"]]
        assert stamps == sorted(stamps, reverse=order == "TimestampDescending")
        assert len(found["coarse"]) == len({stamp for stamp, _ in found["coarse"]}) in (3, 4)
    code, message = refused(
        cloudwatch.get_metric_data,
        MetricDataQueries=[{"Id": "a", "Expression": "SUM(METRICS())"}],
        StartTime=START,
        EndTime=START + 60,
    )
    assert code == "ValidationError"
    assert "math expressions are not provided" in message


def test_metrics_are_listed_with_their_dimensions(rest: Rest, job: str) -> None:
    cloudwatch = rest.service.client("cloudwatch")
    own = cloudwatch.list_metrics(Namespace=NAMESPACE, Dimensions=[{"Name": "TrainingJobName", "Value": job}])
    assert [metric["MetricName"] for metric in own["Metrics"]] == ["loss"]
    hosts = cloudwatch.list_metrics(Namespace=NAMESPACE, Dimensions=[{"Name": "Host"}])["Metrics"]
    assert {"Name": "Host", "Value": f"{job}/algo-1"} in [metric["Dimensions"][0] for metric in hosts]
    assert cloudwatch.list_metrics(Namespace="AWS/EC2")["Metrics"] == []
    _, message = refused(cloudwatch.put_metric_data, Namespace="mine", MetricData=[{"MetricName": "a", "Value": 1}])
    assert "MetricDefinitions" in message


def test_the_query_protocol_gives_the_same(rest: Rest, job: str) -> None:
    admin = rest.service.bootstrap.admin
    body = (
        "Action=GetMetricStatistics&Version=2010-08-01&Namespace=%2Faws%2Fsagemaker%2FTrainingJobs&MetricName=loss"
        f"&Dimensions.member.1.Name=TrainingJobName&Dimensions.member.1.Value={job}"
        "&StartTime=2026-01-01T00%3A00%3A00Z&EndTime=2027-01-01T00%3A00%3A00Z&Period=86400&Statistics.member.1=Sum"
    )
    headers = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
    request = botocore.awsrequest.AWSRequest("POST", rest.service.url + "/", data=body, headers=headers)
    credentials = botocore.credentials.Credentials(admin.access_key_id, admin.secret_access_key)
    botocore.auth.SigV4Auth(credentials, "monitoring", rest.service.settings.region).add_auth(request)
    answer = httpx.post(rest.service.url + "/", content=body, headers=dict(request.headers))
    assert answer.status_code == 200, answer.text
    assert "<Sum>16110.0</Sum>" in answer.text
