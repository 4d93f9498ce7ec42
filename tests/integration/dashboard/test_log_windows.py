"""Windows of a log and what matches in it over REST, and lines that come in batches."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.support.shown_service import ShownService


@pytest.fixture
def logged(shown: ShownService, job_name: str) -> str:
    """`/v1/training-jobs/<name>/logs` of a job with lines of two hosts."""
    shown.place(job_name)
    shown.ship(job_name, "algo-1", [f"one {n}" for n in range(10)])
    shown.ship(job_name, "algo-2", [f"two {n}" for n in range(10)] + ["x" * 20_000])
    return f"/v1/training-jobs/{job_name}/logs"


def test_windows_and_matches(person: httpx.Client, shown: ShownService, logged: str, job_name: str) -> None:
    def get(path: str, **params: Any) -> Any:
        answer = person.get(f"{logged}/{path}", params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    start = get("window", limit=0)
    assert start["lines"] == [] and start["counts"] == {"algo-1": 10, "algo-2": 11} and start["total"] == 21
    shown.ship(job_name, "algo-1", ["later"], 10)
    same = get("window", to=start["to"], host="algo-2", offset=9)
    assert [(each["index"], each["text"][:5]) for each in same["lines"]] == [(9, "two 9"), (10, "xxxxx")]
    assert len(same["lines"][1]["text"]) < 9_000 and "20000 characters" in same["lines"][1]["text"]
    assert [each["text"] for each in get("window", **{"from": start["to"]})["lines"]] == ["later"]
    line = same["lines"][0]
    at = get("window", at=f"{line['stream'].partition('/')[2]}:{line['position'] + 1}", to=start["to"])
    assert at["lines"][at["at"] - at["lines"][0]["index"]]["text"] == "two 9"
    found = get("search", text="ONE 5", host="algo-1", context=1)
    assert [each["text"] for each in found["lines"]] == ["one 4", "one 5", "one 6"]
    assert (found["matching"], found["next"]) == ([5], None)
    assert len(get("search", regex="(one|two) [37]$")["matching"]) == 4


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("search", "Exactly one"),
        ("search?text=a&regex=b", "Exactly one"),
        ("search?regex=(", "no regular expression"),
        ("search?text=", "must not be empty"),
        ("search?error=maybe", "true or false"),
        ("window?to=nonsense", "cursor is not valid"),
        ("window?limit=100000", "whole number"),
        ("window?colour=red", "Unknown query parameters"),
    ],
)
def test_what_is_wrong_is_refused_in_words(person: httpx.Client, logged: str, path: str, words: str) -> None:
    answer = person.get(f"{logged}/{path}")
    assert answer.status_code == 400 and words in answer.json()["message"]


def test_a_log_out_of_reach_has_no_windows(anonymous: httpx.Client, person: httpx.Client, logged: str) -> None:
    assert anonymous.get(f"{logged}/window").status_code == anonymous.get(f"{logged}/search?text=a").status_code == 401
    assert person.get("/v1/training-jobs/no-such-job/logs/window").status_code == 404


def test_batches_join_on_to_each_other_and_resume(
    person: httpx.Client, shown: ShownService, logged: str, job_name: str
) -> None:
    def batch(last: str | None) -> Any:
        headers = {"accept": "text/event-stream", **({"last-event-id": last} if last else {})}
        with person.stream("GET", f"{logged}?batch=true", headers=headers, timeout=60) as stream:
            for line in stream.iter_lines():
                if line.startswith("data: "):
                    return json.loads(line.removeprefix("data: "))

    first = batch(None)
    assert first["from"] is None and len(first["lines"]) == 21
    shown.ship(job_name, "algo-1", ["later"], 10)
    second = batch(first["to"])
    assert second["from"] == first["to"] and [each["text"] for each in second["lines"]] == ["later"]
