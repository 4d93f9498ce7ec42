"""The user's side of a job against a live service: submit, ps, describe, logs, stop, nodes, and their exit codes."""

from __future__ import annotations

import io
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import yaml

from tests.integration.cli.conftest import Command
from tests.support.scripted_agent import ScriptedAgent
from tests.support.shown_service import ShownService
from tests.support.wait import wait_until
from trainshed_service.cli import jobs
from trainshed_worker.protocol import Phase

_numbers = itertools.count(1)


def job_file(service: ShownService, folder: Path, hosts: int = 1, suffix: str = "json") -> tuple[str, Path]:
    """A name and the file of its request."""
    name = f"cli-{next(_numbers)}"
    path = folder / f"{name}.{suffix}"
    request = service.request(name, hosts, HyperParameters={"epochs": "3"})
    path.write_text(json.dumps(request) if suffix == "json" else yaml.safe_dump(request))
    return name, path


def say(service: ShownService, agent: ScriptedAgent, host: str, text: str) -> None:
    """The first line of a host, as its agent sends it."""
    assignment = agent.host(host).assignment
    body = {
        "job_name": assignment.job_name,
        "attempt_id": assignment.attempt_id,
        "source": host,
        "lines": [{"seq": 0, "timestamp_ms": 1_790_000_000_000, "stream": host, "text": text}],
    }
    answer = httpx.post(
        f"{service.ingest_url}/ingest/v1/logs",
        json=body,
        headers={"authorization": agent.http.headers["authorization"]},
        timeout=60,
    )
    assert answer.is_success, answer.text


def running(agent: ScriptedAgent, hosts: int) -> None:
    wait_until(
        lambda: agent.step() and list(agent.phases().values()) == [Phase.RUNNING] * hosts, every=0.02, what="all run"
    )


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Iterator[None]], None]:
    """What goes on in the pauses of a command that follows: one step of the iterator in each, to its end."""

    def let(steps: Iterator[None]) -> None:
        monkeypatch.setattr(jobs, "time", SimpleNamespace(sleep=lambda seconds: next(steps)))

    return let


def test_a_job_from_submit_to_its_end(
    service: ShownService,
    agent: ScriptedAgent,
    aws: Callable[..., Any],
    trainshed: Command,
    tmp_path: Path,
    meanwhile: Callable[[Iterator[None]], None],
) -> None:
    name, path = job_file(service, tmp_path, hosts=2)
    submitted = trainshed("submit", path, "--priority", "7")
    assert (submitted.code, submitted.err) == (0, "")
    described = json.loads(trainshed("describe", name).out)
    assert submitted.out == described["TrainingJobArn"] + "\n"
    assert described["HyperParameters"] == {"epochs": "3"}
    tags = aws("sagemaker").list_tags(ResourceArn=described["TrainingJobArn"])["Tags"]
    assert tags == [{"Key": "trainshed:priority", "Value": "7"}]

    def life() -> Iterator[None]:
        while list(agent.phases().values()) != [Phase.RUNNING] * 2:
            agent.step()
            yield
        say(service, agent, "algo-1", "hello")
        yield
        say(service, agent, "algo-2", "goodbye")
        for host in ("algo-1", "algo-2"):
            agent.exit(host)
        while True:
            agent.step()
            yield

    meanwhile(life())
    followed = trainshed("logs", name, "-f")
    assert (followed.code, followed.out, followed.err) == (0, "algo-1 | hello\nalgo-2 | goodbye\n", "")
    described = json.loads(trainshed("describe", name).out)
    assert described["TrainingJobStatus"] == "Completed"
    assert described["Attempts"] and described["Phases"]
    (line,) = [line for line in trainshed("ps").out.splitlines() if line.startswith(f"{name} ")]
    assert "Completed" in line.split()


def test_a_failed_job_ends_the_followers_with_2(
    service: ShownService, agent: ScriptedAgent, aws: Callable[..., Any], trainshed: Command, tmp_path: Path
) -> None:
    name, path = job_file(service, tmp_path, suffix="yaml")
    assert trainshed("submit", path).code == 0
    running(agent, 1)
    say(service, agent, "algo-1", "no such column")
    so_far = trainshed("logs", name)
    assert (so_far.code, so_far.out) == (0, "no such column\n"), "without -f it does not wait for the end"
    agent.exit("algo-1", 1, "KeyError: 'label'")
    client = aws("sagemaker")
    wait_until(
        lambda: agent.step() and client.describe_training_job(TrainingJobName=name)["TrainingJobStatus"] == "Failed",
        every=0.02,
        what="it has failed",
    )
    (line,) = trainshed("ps", "--status", "Failed").out.splitlines()[1:]
    assert line.split()[:3] == [name, "Failed", "Failed"]
    followed = trainshed("logs", name, "--follow")
    assert (followed.code, followed.out) == (2, "no such column\n")
    assert followed.err == f"trainshed: {name} is Failed: AlgorithmError: algo-1: exit code 1: KeyError: 'label'\n"
    assert trainshed("logs", name).code == 0
    assert json.loads(trainshed("describe", name).out)["FailureReason"].endswith("KeyError: 'label'")


def test_a_stopped_job_ends_the_followers_with_3(
    service: ShownService,
    agent: ScriptedAgent,
    trainshed: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    meanwhile: Callable[[Iterator[None]], None],
) -> None:
    name, path = job_file(service, tmp_path, suffix="yaml")
    monkeypatch.setattr(sys, "stdin", io.StringIO(path.read_text()))
    assert trainshed("submit", "-").code == 0
    running(agent, 1)
    (leased,) = [line for line in trainshed("nodes").out.splitlines() if name in line.split()]
    assert {"leased", "ml.c5.xlarge", "h", "full"} <= set(leased.split())
    stopped = trainshed("stop", name)
    assert (stopped.code, stopped.out) == (0, f"{name} is stopping\n")
    meanwhile(agent.step() for _ in itertools.count())  # type: ignore[misc]
    followed = trainshed("logs", name, "-f")
    assert (followed.code, followed.out, followed.err) == (3, "", f"trainshed: {name} is Stopped\n")
    refused = trainshed("stop", name)
    assert refused.code == 1
    assert "the training job is in status Stopped. (ValidationException)" in refused.err


def test_what_the_service_refuses_is_one_sentence(service: ShownService, trainshed: Command, tmp_path: Path) -> None:
    _, path = job_file(service, tmp_path)
    path.write_text(path.read_text().replace("s3://", "s4://"))
    for words in (["submit", path], ["describe", "never-was"], ["logs", "never-was"], ["stop", "never-was"]):
        done = trainshed(*words)
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith("trainshed: ")
        assert done.err.count("\n") == 1
