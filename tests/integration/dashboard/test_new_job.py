"""The page of a new job over real HTTP: what it checks, what it sends, and what it takes over from another job."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import httpx

from tests.support.shown_service import ShownService, csrf_of


def text_of(page: str) -> Any:
    found = re.search(r'<textarea name="spec"[^>]*>(.*?)</textarea>', page, re.DOTALL)
    assert found, page
    return json.loads(html.unescape(found[1]))


def test_a_text_is_checked_as_a_create_would_and_nothing_is_stored(
    person: httpx.Client, shown: ShownService, job_name: str
) -> None:
    page = person.get("/new-job").text
    csrf = csrf_of(page)
    assert text_of(page)["RoleArn"] == shown.bootstrap.role_arn

    def check(text: str, csrf: str = csrf) -> httpx.Response:
        return person.post("/new-job/check", data={"csrf": csrf, "spec": text})

    good = shown.request(job_name)
    answer = check(json.dumps(good)).json()
    assert answer["valid"] and answer["allocation"]["hosts"][0]["instanceType"] == "ml.c5.xlarge"
    wrong = check(json.dumps({**good, "RoleArn": "arn:aws:iam::000000000000:role/absent"})).json()
    assert not wrong["valid"] and "absent" in wrong["refusals"][0]["message"]
    unknown = check(json.dumps({**good, "Colour": "red"})).json()
    assert not unknown["valid"] and "Colour" in unknown["refusals"][0]["message"]
    assert not check("{").json()["valid"]
    assert check(json.dumps(good), "x").status_code == 403
    assert person.get(f"/v1/training-jobs/{job_name}").status_code == 404


def test_what_is_refused_comes_back_whole_and_what_is_right_becomes_a_job(
    person: httpx.Client, shown: ShownService, job_name: str
) -> None:
    csrf = csrf_of(person.get("/new-job").text)
    request = shown.request(job_name, HyperParameters={"note": "<b> & \"'"}, Tags=[{"Key": "team", "Value": "x"}])
    refused = person.post("/new-job", data={"csrf": csrf, "spec": json.dumps({**request, "TrainingJobName": "-"})})
    assert refused.status_code == 400 and 'role="alert"' in refused.text
    assert text_of(refused.text) == {**request, "TrainingJobName": "-"}
    text = json.dumps(request, indent=1)
    made = person.post("/new-job", data={"csrf": csrf, "spec": text})
    assert (made.status_code, made.headers["location"]) == (303, f"/jobs/{job_name}")
    again = person.post("/new-job", data={"csrf": csrf, "spec": text})
    assert "already exists" in again.text and text_of(again.text) == request
    clone = text_of(person.get(f"/new-job?from={job_name}").text)
    assert clone == {**request, "TrainingJobName": clone["TrainingJobName"]}
    assert re.fullmatch(r".+-\d+", clone["TrainingJobName"]) and clone["TrainingJobName"] != job_name
    assert person.post("/new-job", data={"csrf": csrf, "spec": json.dumps(clone)}).status_code == 303
    assert person.get("/new-job?from=no-such-job").status_code == 404
