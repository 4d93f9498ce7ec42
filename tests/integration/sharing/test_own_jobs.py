"""A user sees and changes its own jobs, through every door; for anybody else they are not there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from tests.integration.core.conftest import start_api
from tests.integration.sharing.conftest import Person, Sharing, error_of
from tests.support.api_process import ApiProcess
from tests.support.shown_service import log_in
from trainshed_service.clock import SystemClock
from trainshed_service.identity import Credentials, IdentityService
from trainshed_service.store import Database

__all__ = ["start_api"]
GROUP = "/aws/sagemaker/TrainingJobs"
ABSENT = ("ValidationException", "Requested resource not found.")


@dataclass
class Scene:
    """Anna has a job that trains; Ben has nothing."""

    sharing: Sharing
    anna: Person
    ben: Person
    job: str
    arn: str


@pytest.fixture(scope="module")
def scene(sharing: Sharing) -> Iterator[Scene]:
    role = [sharing.service.bootstrap.role_arn]
    anna, ben = sharing.person(mayPass=role), sharing.person(mayPass=role)
    job = sharing.place(anna.name)
    arn = anna.client().describe_training_job(TrainingJobName=job)["TrainingJobArn"]
    yield Scene(sharing, anna, ben, job, arn)


def test_describe(scene: Scene) -> None:
    for client in (scene.anna.client(), scene.sharing.client()):
        assert client.describe_training_job(TrainingJobName=scene.job)["TrainingJobName"] == scene.job
    assert error_of(scene.ben.client().describe_training_job, TrainingJobName=scene.job) == ABSENT


def test_list(scene: Scene) -> None:
    def names(client: Any, **filters: Any) -> list[str]:
        pages = client.get_paginator("list_training_jobs").paginate(**filters)
        return [job["TrainingJobName"] for page in pages for job in page["TrainingJobSummaries"]]

    for filters in ({}, {"SortBy": "Name"}, {"NameContains": scene.job}, {"StatusEquals": "InProgress"}):
        assert names(scene.anna.client(), **filters) == [scene.job]
        assert names(scene.ben.client(), **filters) == []
        assert scene.job in names(scene.sharing.client(), **filters)


def test_pages_of_a_list_hold_ones_own_jobs_only(scene: Scene) -> None:
    person = scene.sharing.person(mayPass=[scene.sharing.service.bootstrap.role_arn])
    created = []
    for _ in range(5):
        created.append(scene.sharing.request())
        person.client().create_training_job(**created[-1])
        scene.sharing.client().create_training_job(**scene.sharing.request())
    pages = list(person.client().get_paginator("list_training_jobs").paginate(PaginationConfig={"PageSize": 2}))
    assert [len(page["TrainingJobSummaries"]) for page in pages] == [2, 2, 1]
    names = [job["TrainingJobName"] for page in pages for job in page["TrainingJobSummaries"]]
    assert names == [request["TrainingJobName"] for request in reversed(created)]


def test_search(scene: Scene) -> None:
    by_name = {"Filters": [{"Name": "TrainingJobName", "Operator": "Equals", "Value": scene.job}]}
    for expression in ({"SearchExpression": by_name}, {}):
        found = scene.anna.client().search(Resource="TrainingJob", **expression)["Results"]
        assert [each["TrainingJob"]["TrainingJobName"] for each in found] == [scene.job]
        assert scene.ben.client().search(Resource="TrainingJob", **expression)["Results"] == []


def test_changes(scene: Scene) -> None:
    ben = scene.ben.client()
    assert error_of(ben.stop_training_job, TrainingJobName=scene.job) == ABSENT
    assert error_of(ben.delete_training_job, TrainingJobName=scene.job) == ABSENT
    profiler = {"DisableProfiler": True}
    assert error_of(ben.update_training_job, TrainingJobName=scene.job, ProfilerConfig=profiler) == ABSENT
    for call, more in (
        (ben.add_tags, {"Tags": [{"Key": "k", "Value": "v"}]}),
        (ben.delete_tags, {"TagKeys": ["k"]}),
        (ben.list_tags, {}),
    ):
        assert error_of(call, ResourceArn=scene.arn, **more)[0] == "ResourceNotFound"
    status = scene.anna.client().describe_training_job(TrainingJobName=scene.job)["TrainingJobStatus"]
    assert status == "InProgress"
    assert scene.anna.client().list_tags(ResourceArn=scene.arn)["Tags"] == []
    scene.anna.client().add_tags(ResourceArn=scene.arn, Tags=[{"Key": "k", "Value": "v"}])
    scene.anna.client().delete_tags(ResourceArn=scene.arn, TagKeys=["k"])


def test_a_taken_name_is_taken_for_everybody(scene: Scene) -> None:
    code, message = error_of(scene.ben.client().create_training_job, **scene.sharing.request(scene.job))
    assert code == "ResourceInUse"
    assert "already exists" in message


def test_ones_own_job_is_stopped(scene: Scene) -> None:
    request = scene.sharing.request()
    name = request["TrainingJobName"]
    scene.ben.client().create_training_job(**request)
    assert error_of(scene.anna.client().stop_training_job, TrainingJobName=name) == ABSENT
    scene.ben.client().stop_training_job(TrainingJobName=name)
    assert scene.ben.client().describe_training_job(TrainingJobName=name)["TrainingJobStatus"] == "Stopped"
    scene.ben.client().delete_training_job(TrainingJobName=name)
    assert error_of(scene.ben.client().describe_training_job, TrainingJobName=name) == ABSENT


@pytest.mark.parametrize("path", ["", "/logs", "/events", "/metrics", "/metrics?name=loss", "/pools"])
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream", "text/plain"])
def test_rest(scene: Scene, path: str, accept: str) -> None:
    url = f"/v1/training-jobs/{scene.job}{path}"
    refused = scene.ben.http.get(url, headers={"accept": accept})
    assert (refused.status_code, refused.json()["message"]) == (404, "Requested resource not found.")
    if accept == "application/json":
        assert scene.anna.http.get(url).status_code == 200


def test_rest_changes(scene: Scene) -> None:
    url = f"/v1/training-jobs/{scene.job}"
    assert scene.ben.http.post(f"{url}/stop").status_code == 404
    assert scene.ben.http.delete(url).status_code == 404
    assert scene.ben.http.patch(url, json={"ProfilerConfig": {"DisableProfiler": True}}).status_code == 404
    assert scene.anna.http.get(url).json()["TrainingJobStatus"] == "InProgress"


def test_rest_says_whose_job_it_is(scene: Scene) -> None:
    assert scene.sharing.admin.get(f"/v1/training-jobs/{scene.job}").json()["User"] == scene.anna.name


def test_a_followed_log_ends_when_the_job_is_not_there_any_more(scene: Scene) -> None:
    """Whoever follows a job is not shown the lines of another one that got its name."""
    request = scene.sharing.request()
    url = f"/v1/training-jobs/{request['TrainingJobName']}/logs"
    scene.anna.client().create_training_job(**request)
    scene.anna.client().stop_training_job(TrainingJobName=request["TrainingJobName"])
    scene.anna.client().delete_training_job(TrainingJobName=request["TrainingJobName"])
    scene.ben.client().create_training_job(**request)
    answer = scene.anna.http.get(url, headers={"accept": "text/event-stream"})
    assert answer.status_code == 404


def test_log_streams(scene: Scene) -> None:
    anna, ben, admin = (each.client("logs") for each in (scene.anna, scene.ben, scene.sharing))

    def streams(client: Any, **options: Any) -> list[str]:
        pages = client.get_paginator("describe_log_streams").paginate(logGroupName=GROUP, **options)
        return [stream["logStreamName"] for page in pages for stream in page["logStreams"]]

    (stream,) = streams(anna, logStreamNamePrefix=f"{scene.job}/")
    for options in ({}, {"logStreamNamePrefix": scene.job[:4]}, {"orderBy": "LastEventTime", "descending": True}):
        assert streams(anna, **options) == [stream]
        assert streams(ben, **options) == []
        assert stream in streams(admin, **options)
    assert streams(ben, logStreamNamePrefix=f"{scene.job}/") == []
    assert streams(ben, logStreamNamePrefix=stream) == []


def test_log_lines(scene: Scene) -> None:
    anna, ben = scene.anna.client("logs"), scene.ben.client("logs")
    (stream,) = anna.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=f"{scene.job}/")["logStreams"]
    named = {"logGroupName": GROUP, "logStreamName": stream["logStreamName"]}
    assert [each["message"] for each in anna.get_log_events(**named)["events"]] == [f"a line of {scene.job}"]
    gone = ("ResourceNotFoundException", "The specified log stream does not exist.")
    assert error_of(ben.get_log_events, **named) == gone
    for options in ({}, {"logStreamNames": [stream["logStreamName"]]}, {"logStreamNamePrefix": scene.job}):
        pages = anna.get_paginator("filter_log_events").paginate(logGroupName=GROUP, **options)
        lines = [event["message"] for page in pages for event in page["events"]]
        assert lines == [f"a line of {scene.job}"]
    for options in ({}, {"logStreamNamePrefix": scene.job}, {"logStreamNamePrefix": f"{scene.job}/"}):
        pages = ben.get_paginator("filter_log_events").paginate(logGroupName=GROUP, **options)
        assert [event for page in pages for event in page["events"]] == []
    refused = error_of(ben.filter_log_events, logGroupName=GROUP, logStreamNames=[stream["logStreamName"]])
    assert refused == gone


def test_metrics(scene: Scene) -> None:
    metric = {
        "Namespace": GROUP,
        "MetricName": "loss",
        "Dimensions": [{"Name": "TrainingJobName", "Value": scene.job}],
    }
    span = {
        "StartTime": datetime.fromtimestamp(1_789_999_000, UTC),
        "EndTime": datetime.fromtimestamp(1_790_001_000, UTC),
    }

    def points(person: Person) -> tuple[int, int, int]:
        client = person.client("cloudwatch")
        query = {"Id": "m", "MetricStat": {"Metric": metric, "Period": 60, "Stat": "Average"}}
        (result,) = client.get_metric_data(MetricDataQueries=[query], **span)["MetricDataResults"]
        statistics = client.get_metric_statistics(**metric, **span, Period=60, Statistics=["Average"])
        listed = [each for page in client.get_paginator("list_metrics").paginate() for each in page["Metrics"]]
        assert all(each["Dimensions"][0]["Value"] == scene.job for each in listed)
        return len(result["Values"]), len(statistics["Datapoints"]), len(listed)

    assert points(scene.anna) == (1, 1, 1)
    assert points(scene.ben) == (0, 0, 0)


def test_nodes_do_not_name_the_jobs_of_others(scene: Scene) -> None:
    def named(http: httpx.Client) -> set[str | None]:
        return {node["job"] for node in http.get("/v1/nodes").json()["nodes"]}

    assert named(scene.anna.http) - {None} == {scene.job}
    assert named(scene.ben.http) == {None}
    assert scene.job in named(scene.sharing.admin)


def test_dashboard(scene: Scene) -> None:
    with scene.sharing.service.browser() as anna, scene.sharing.service.browser() as ben:
        for browser, person in ((anna, scene.anna), (ben, scene.ben)):
            assert log_in(browser, key=person.key, secret=person.secret).status_code == 303
        for page in ("/jobs", f"/jobs/{scene.job}", f"/jobs/{scene.job}/log", "/nodes"):
            assert scene.job in anna.get(page).text
        for page in ("/jobs", "/jobs?status=running", "/jobs?q=job", "/nodes"):
            assert scene.job not in ben.get(page).text, page
        for page in (f"/jobs/{scene.job}", f"/jobs/{scene.job}/log"):
            assert ben.get(page).status_code == 404
        # The session of a browser reads REST too.
        assert anna.get(f"/v1/training-jobs/{scene.job}/logs").status_code == 200
        assert ben.get(f"/v1/training-jobs/{scene.job}/logs").status_code == 404


def test_with_job_visibility_all_everybody_sees_and_nobody_else_changes(
    start_api: Callable[..., ApiProcess],
) -> None:
    api = start_api(roles="open", job_visibility="all")
    ben = new_client(api, "ben")
    request = {
        "TrainingJobName": "of-the-admin",
        "RoleArn": api.bootstrap.role_arn,
        "AlgorithmSpecification": {"TrainingImage": "image", "TrainingInputMode": "File"},
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
        "ResourceConfig": {"InstanceType": "ml.c5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
    }
    arn = api.client().create_training_job(**request)["TrainingJobArn"]
    assert ben.describe_training_job(TrainingJobName="of-the-admin")["TrainingJobArn"] == arn
    assert len(ben.list_training_jobs()["TrainingJobSummaries"]) == 1
    code, message = error_of(ben.stop_training_job, TrainingJobName="of-the-admin")
    assert code == "AccessDeniedException"
    assert "user/ben is not authorized to perform: sagemaker:StopTrainingJob" in message
    denied = error_of(ben.add_tags, ResourceArn=arn, Tags=[{"Key": "k", "Value": "v"}])
    assert denied[0] == "AccessDeniedException"
    assert ben.list_tags(ResourceArn=arn)["Tags"] == []


def new_client(api: ApiProcess, name: str) -> Any:
    """A boto3 client of a user that is made in the database."""
    database = Database(api.settings.resolved_database_url)
    identity = IdentityService(api.home, SystemClock())

    def make(session: Any) -> Credentials:
        return identity.create_access_key(session, identity.create_user(session, name).id)

    try:
        key = database.write_sync(make)
    finally:
        database.close()
    return Person(name, api.url, key.access_key_id, key.secret_access_key, httpx.Client()).client()
