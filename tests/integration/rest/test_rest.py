"""REST against the real api process: jobs, logs, events, errors, authentication."""

from __future__ import annotations

import json
from typing import Any

import botocore.auth
import botocore.awsrequest
import botocore.credentials
import httpx
import pytest

from tests.integration.rest.conftest import Rest
from trainshed_service.store.models import Job


def spec(rest: Rest, name: str, **more: Any) -> dict[str, Any]:
    return rest.service.request(name, 2, **more)


def events_of(stream: httpx.Response) -> list[tuple[str, str, dict[str, Any]]]:
    """(event, id, data) of a stream that ends."""
    found = []
    for block in stream.read().decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if fields:
            found.append((fields["event"], fields.get("id", ""), json.loads(fields["data"])))
    return found


def test_the_life_of_a_job_that_waits(rest: Rest) -> None:
    created = rest.http.post("/v1/training-jobs", json=spec(rest, "life"))
    assert created.status_code == 201, created.text
    assert created.json()["TrainingJobArn"].endswith(":training-job/life")
    described = rest.http.get(created.headers["location"]).json()
    assert described["TrainingJobStatus"] == "InProgress"
    assert described["State"] == "queued"
    assert "needs 2 × ml.c5.xlarge" in described["WaitingReason"]
    assert described["ResourceConfig"]["InstanceCount"] == 2
    assert any("VolumeSizeInGB" in notice for notice in described["Notices"])
    again = rest.http.post("/v1/training-jobs", json=spec(rest, "life"))
    assert (again.status_code, again.json()["code"]) == (409, "ResourceInUse")
    assert rest.http.delete("/v1/training-jobs/life").status_code == 400
    listed = rest.http.get("/v1/training-jobs", params={"NameContains": "lif", "MaxResults": 1}).json()
    assert [job["TrainingJobName"] for job in listed["TrainingJobSummaries"]] == ["life"]
    assert rest.http.post("/v1/training-jobs/life/stop").status_code == 202
    assert rest.http.get("/v1/training-jobs/life").json()["TrainingJobStatus"] == "Stopped"
    kinds = [kind for kind, _, _ in events_of(rest.http.get("/v1/training-jobs/life/events?format=sse"))]
    assert kinds[0] == "job"
    assert kinds[-1] == "end"
    first, *_ = rest.http.get("/v1/training-jobs/life/events").json()["events"]
    assert first["kind"] == "job.created"
    assert rest.http.get("/v1/training-jobs/life/events", params={"after": first["id"]}).json()["events"][0] != first
    assert rest.http.delete("/v1/training-jobs/life").status_code == 202
    gone = rest.http.get("/v1/training-jobs/life")
    assert (gone.status_code, gone.json()) == (
        404,
        {"code": "ValidationException", "message": "Requested resource not found."},
    )


def test_a_dry_run_says_what_would_be_and_stores_nothing(rest: Rest) -> None:
    answer = rest.http.post("/v1/training-jobs?dryRun=true", json=spec(rest, "dry"))
    assert answer.status_code == 200
    found = answer.json()
    assert found["valid"] is True
    assert [host["host"] for host in found["allocation"]["hosts"]] == ["algo-1", "algo-2"]
    assert found["allocation"]["startsNow"] is False
    assert "needs 2 × ml.c5.xlarge" in found["allocation"]["waitingReason"]
    assert rest.http.get("/v1/training-jobs/dry").status_code == 404
    bad_role = spec(rest, "dry", RoleArn="arn:aws:iam::123456789012:role/nobody")
    refused = rest.http.post("/v1/training-jobs?dryRun=true", json=bad_role).json()
    assert refused["valid"] is False
    assert "Could not assume role" in refused["refusals"][0]["message"]
    misspelt = spec(rest, "dry") | {"metric_definitons": []}
    refused = rest.http.post("/v1/training-jobs?dryRun=true", json=misspelt).json()
    assert "metric_definitons" in refused["refusals"][0]["message"]
    assert rest.http.post("/v1/training-jobs?dryRun=maybe", json={}).status_code == 400


@pytest.mark.parametrize(
    ("method", "path", "body", "words"),
    [
        ("POST", "/v1/training-jobs", {"TrainingJobNam": "x"}, "trainingJobName"),
        ("POST", "/v1/training-jobs?dryrun=true", {}, "dryrun"),
        ("GET", "/v1/training-jobs?MaxResult=1", None, "MaxResult"),
        ("GET", "/v1/training-jobs?MaxResults=none", None, "MaxResults"),
        ("GET", "/v1/training-jobs?MaxResults=1000", None, "less than or equal to 100"),
        ("GET", "/v1/training-jobs?NextToken=x", None, "NextToken"),
        ("POST", "/v1/search", {"Resource": "Model"}, "Model"),
        ("PATCH", "/v1/training-jobs/a", {"TrainingJobName": "b"}, "in the path"),
        ("GET", "/v1/training-jobs/a_b", None, "trainingJobName"),
    ],
)
def test_what_is_wrong_is_refused_by_name(rest: Rest, method: str, path: str, body: Any, words: str) -> None:
    answer = rest.http.request(method, path, json=body)
    assert answer.status_code == 400, answer.text
    assert set(answer.json()) == {"code", "message"}
    assert words in answer.json()["message"]


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b'{"a": NaN}'])
def test_a_body_that_is_no_object_is_refused(rest: Rest, body: bytes) -> None:
    answer = rest.http.post("/v1/training-jobs", content=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "SerializationException")


def test_other_paths_and_methods_have_json_errors(rest: Rest) -> None:
    missing = rest.http.get("/v1/nothing")
    assert (missing.status_code, missing.json()["code"]) == (404, "NotFound")
    wrong = rest.http.put("/v1/training-jobs")
    assert (wrong.status_code, wrong.json()["code"]) == (405, "MethodNotAllowed")


def test_only_a_verified_caller_is_answered(rest: Rest) -> None:
    url = rest.service.url
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "AWS4-HMAC-SHA256 nonsense"}):
        for path in ("/v1/training-jobs", "/v1/whoami", "/v1/nodes", "/v1/training-jobs/x/logs"):
            refused = httpx.get(url + path, headers=headers)
            assert refused.status_code == 401, (path, headers)
            assert refused.json()["code"]
    signed = _signed(rest, "GET", "/v1/whoami?", b"", rest.service.bootstrap.admin.secret_access_key)
    assert signed.json()["isAdmin"] is True
    forged = _signed(rest, "GET", "/v1/whoami?", b"", "another secret")
    assert forged.status_code == 401
    body = json.dumps(spec(rest, "signed")).encode()
    dry = _signed(rest, "POST", "/v1/training-jobs?dryRun=true", body, rest.service.bootstrap.admin.secret_access_key)
    assert dry.json()["valid"] is True


def _signed(rest: Rest, method: str, path: str, body: bytes, secret: str) -> httpx.Response:
    credentials = botocore.credentials.Credentials(rest.service.bootstrap.admin.access_key_id, secret)
    request = botocore.awsrequest.AWSRequest(method, rest.service.url + path, data=body)
    botocore.auth.SigV4Auth(credentials, "sagemaker", rest.service.settings.region).add_auth(request)
    return httpx.request(method, rest.service.url + path, content=body, headers=dict(request.headers))


def test_logs_come_in_pages_as_a_download_and_by_host(rest: Rest) -> None:
    rest.place("paged")
    rest.ship("paged", "algo-1", [f"one {seq}" for seq in range(700)], ms=1_790_000_000_000)
    rest.ship("paged", "algo-2", [f"two {seq}" for seq in range(700)], ms=1_790_000_000_000)
    texts: list[str] = []
    page: dict[str, Any] = {"cursor": None, "atEnd": False}
    while not page["atEnd"]:
        query = {"limit": "300"} | ({"cursor": page["cursor"]} if page["cursor"] else {})
        page = rest.http.get("/v1/training-jobs/paged/logs", params=query).json()
        texts += [line["text"] for line in page["lines"]]
    assert sorted(texts) == sorted(f"{host} {seq}" for host in ("one", "two") for seq in range(700))
    assert texts[:4] == ["one 0", "two 0", "one 1", "two 1"]
    both = rest.http.get("/v1/training-jobs/paged/logs", headers={"Accept": "text/plain"})
    assert both.text.splitlines()[:2] == ["algo-1 | one 0", "algo-2 | two 0"]
    own = rest.http.get("/v1/training-jobs/paged/logs", params={"format": "text", "host": "algo-2"})
    assert own.text == "".join(f"two {seq}\n" for seq in range(700))
    bad = rest.http.get("/v1/training-jobs/paged/logs", params={"cursor": "1-zz"})
    assert (bad.status_code, bad.json()["code"]) == (400, "ValidationException")
    assert rest.http.get("/v1/training-jobs/nobody/logs").status_code == 404


def test_a_followed_log_resumes_behind_the_last_line_and_ends_with_the_job(rest: Rest) -> None:
    rest.place("followed")
    rest.ship("followed", "algo-1", ["first", "second"])
    url = "/v1/training-jobs/followed/logs"
    seen: list[tuple[str, str]] = []
    with rest.http.stream("GET", url, headers={"Accept": "text/event-stream"}) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        identity = ""
        for text in stream.iter_lines():
            if text.startswith("id: "):
                identity = text[4:]
            elif text.startswith("data: "):
                seen.append((identity, json.loads(text[6:])["text"]))
                if len(seen) == 2:
                    rest.ship("followed", "algo-1", ["third"], first=2)
                if len(seen) == 3:
                    break
    assert [text for _, text in seen] == ["first", "second", "third"]
    rest.ship("followed", "algo-2", ["other host"])
    _end(rest, "followed")
    resumed = rest.http.get(url, headers={"Accept": "text/event-stream", "Last-Event-ID": seen[1][0]})
    got = events_of(resumed)
    assert [data["text"] for kind, _, data in got if kind == "line"] == ["third", "other host"]
    assert got[-1] == ("end", "", {"status": "Completed"})


def _end(rest: Rest, name: str) -> None:
    def finish(session: Any) -> None:
        job = session.query(Job).filter_by(name=name).one()
        job.state, job.status, job.secondary_status = "completed", "Completed", "Completed"
        job.version += 1  # as every change of a job; what is rendered is kept by it

    rest.service.control.write_sync(finish)


def test_metrics_of_a_job(rest: Rest) -> None:
    rest.place("measured")
    points = [
        {"name": "loss", "value": 1.0 / (step + 1), "timestamp_ms": 1_000 * step, "seq": step} for step in range(9)
    ]
    rest.ship_points("measured", "algo-1", points)
    rest.ship_points(
        "measured", "algo-2", [{"name": "CPUUtilization", "value": 42.0, "timestamp_ms": 5_000, "host": "algo-2"}]
    )
    found = rest.http.get("/v1/training-jobs/measured/metrics").json()
    assert found["metrics"] == [{"name": "CPUUtilization", "host": "algo-2"}, {"name": "loss", "host": None}]
    assert found["final"] == [{"name": "loss", "value": pytest.approx(1 / 9), "timestamp": 8_000}]
    some = rest.http.get("/v1/training-jobs/measured/metrics", params={"name": "loss", "after": 6_000}).json()
    assert [point["timestamp"] for point in some["points"]] == [7_000, 8_000]
    every = rest.http.get("/v1/training-jobs/measured/metrics", params={"name": "loss"}).json()
    assert len(every["points"]) == 9


def test_nodes_roles_and_log_contact(rest: Rest) -> None:
    rest.place("placed")
    held = [node for node in rest.http.get("/v1/nodes").json()["nodes"] if node["job"] == "placed"]
    assert [(node["host"], node["state"]) for node in held] == [("algo-1", "leased"), ("algo-2", "leased")]
    arns = [role["arn"] for role in rest.http.get("/v1/roles").json()["roles"]]
    assert rest.service.bootstrap.role_arn in arns
    rest.ship("placed", "algo-1", ["hello"])
    described = rest.http.get("/v1/training-jobs/placed")
    assert described.status_code == 200, described.text
    (contact,) = described.json()["LogContact"]
    assert (contact["host"], contact["lines"]) == ("algo-1", 1)
    assert contact["silentSeconds"] < 60


def test_the_description_is_served_without_a_login_and_without_scripts(rest: Rest) -> None:
    document = httpx.get(rest.service.url + "/openapi.json").json()
    body = document["paths"]["/v1/training-jobs"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    schema = document["components"]["schemas"][body["$ref"].rsplit("/", 1)[-1]]
    assert schema["additionalProperties"] is False
    assert {"TrainingJobName", "RoleArn", "OutputDataConfig"} <= set(schema["required"])
    assert schema["properties"]["TrainingJobName"]["maxLength"] == 63
    page = httpx.get(rest.service.url + "/docs")
    assert "<script" not in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "/v1/training-jobs/{name}/logs" in page.text
