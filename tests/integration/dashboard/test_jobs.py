"""The list of jobs: filters that work together, its stream of changes, and stopping several at once."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import httpx
import pytest

from tests.support.shown_service import ShownService, csrf_of


def listed(client: httpx.Client, **params: Any) -> list[str]:
    page = client.get("/jobs", params=params)
    assert page.status_code == 200, page.text
    return re.findall(r'class="name"><a href="/jobs/([^"]+)">', page.text)


@pytest.fixture
def family(shown: ShownService, job_name: str) -> str:
    """Four jobs: two types, two tags, two states. Their common stem."""
    create = shown.client("sagemaker").create_training_job
    big = {"ResourceConfig": {"InstanceType": "ml.c5.4xlarge", "InstanceCount": 1, "VolumeSizeInGB": 1}}
    groups = [
        {"InstanceType": "ml.c5.4xlarge", "InstanceCount": 1, "InstanceGroupName": "a"},
        {"InstanceType": "ml.c5.xlarge", "InstanceCount": 1, "InstanceGroupName": "b"},
    ]
    mixed = {"ResourceConfig": {"InstanceGroups": groups, "VolumeSizeInGB": 1}}
    create(**shown.request(f"{job_name}-a", Tags=[{"Key": "team", "Value": f"{job_name}"}]))
    create(**shown.request(f"{job_name}-b", **big, Tags=[{"Key": "team", "Value": "other"}]))
    create(**shown.request(f"{job_name}-c", **mixed))
    create(**shown.request(f"{job_name}-d", **big))
    shown.client("sagemaker").stop_training_job(TrainingJobName=f"{job_name}-d")
    return job_name


def test_kinds_of_filters_mean_and_values_of_one_mean_or(
    person: httpx.Client, shown: ShownService, family: str
) -> None:
    def names(**params: Any) -> str:
        return "".join(sorted(name.removeprefix(f"{family}-") for name in listed(person, q=family, **params)))

    assert names() == "abcd"
    assert names(type="ml.c5.4xlarge") == "bcd" and names(type=["ml.c5.xlarge", "ml.c5.4xlarge"]) == "abcd"
    assert names(type="ml.c5.4xlarge", status="waiting") == "bc"
    assert names(type="ml.c5.4xlarge", status=["waiting", "stopped"]) == "bcd"
    assert names(tag=f"team={family}") == "a" and names(tag="team") == "ab"
    assert names(tag=[f"team={family}", "team=other"], type="ml.c5.xlarge") == "a"
    assert names(user="admin") == "abcd" and names(user="nobody") == ""
    role = shown.bootstrap.role_arn
    assert names(role=role.rpartition("/")[2]) == names(role=role) == "abcd" and names(role="x") == ""
    assert names(since="2020-01-01") == "abcd" and names(until="2020-01-01") == "" and names(since="2100-01-01") == ""
    assert listed(person, q=family, sort="name") == [f"{family}-{each}" for each in "dcba"]
    assert listed(person, q=family, sort="name", order="asc") == [f"{family}-{each}" for each in "abcd"]
    assert listed(person, q=family, order="asc")[0] == f"{family}-a"
    assert listed(person, q=family, sort="status", order="desc")[0] == f"{family}-d"
    body = re.search(
        r"/v1/search&#34; -d &#39;(.+?)&#39;|/v1/search\" -d &#39;(.+?)&#39;",
        person.get("/jobs", params={"q": family, "tag": "team", "type": "ml.c5.4xlarge", "status": "waiting"}).text,
    )
    assert body is not None
    token = {"Authorization": f"Bearer {shown.token}"}
    found = httpx.post(f"{shown.url}/v1/search", content=html.unescape(body[1] or body[2]), headers=token, timeout=30)
    assert [each["TrainingJob"]["TrainingJobName"] for each in found.json()["Results"]] == [f"{family}-b"]


def test_a_change_comes_by_the_stream_of_the_page(person: httpx.Client, shown: ShownService, job_name: str) -> None:
    address = f"/jobs?q={job_name}"
    tag = person.get(address).headers["etag"]
    headers = {"accept": "text/event-stream", "last-event-id": tag}
    with person.stream("GET", address, headers=headers, timeout=60) as stream:
        assert stream.status_code == 200 and stream.headers["content-type"].startswith("text/event-stream")
        shown.client("sagemaker").create_training_job(**shown.request(job_name))
        sent: dict[str, str] = {}
        for line in stream.iter_lines():
            name, _, value = line.partition(": ")
            sent[name] = value
            if not line and job_name in sent.get("data", ""):
                break
    assert sent["event"] == "page" and f"/jobs/{job_name}" in json.loads(sent["data"])["html"]
    assert sent["id"] == person.get(address).headers["etag"]


def test_whoever_has_no_session_gets_no_stream(anonymous: httpx.Client) -> None:
    assert anonymous.get("/jobs", headers={"accept": "text/event-stream"}).status_code == 401


def test_several_jobs_are_stopped_after_a_question(person: httpx.Client, shown: ShownService, family: str) -> None:
    names = [f"{family}-{each}" for each in "abd"]
    back = f"/jobs?q={family}"
    sent: dict[str, Any] = {"csrf": csrf_of(person.get(back).text), "job": names, "back": back}
    assert person.post("/jobs/stop", data={**sent, "csrf": "x", "confirmed": "yes"}).status_code == 403
    question = person.post("/jobs/stop", data=sent)
    assert "Stop 2 jobs?" in question.text and "stays as it is" in question.text
    assert len(listed(person, q=family, status="waiting")) == 3
    answer = person.post("/jobs/stop", data={**sent, "job": names[:2], "confirmed": "yes"})
    assert (answer.status_code, answer.headers["location"]) == (303, back)
    assert len(listed(person, q=family, status="stopped")) == 3
    again = person.post("/jobs/stop", data={**sent, "job": [names[2], f"{family}-c"], "confirmed": "yes"})
    assert "1 of 2 jobs are stopping" in again.text and names[2] in again.text
    assert listed(person, q=family, status="waiting") == []
    elsewhere = person.post("/jobs/stop", data={**sent, "job": [], "back": "https://evil.example"})
    assert elsewhere.headers["location"] == "/jobs"
