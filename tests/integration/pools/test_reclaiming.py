"""A whole installation with real processes: a warm pool is given up for a job that waits and that it does not match."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.jobs import events_of, job_request, log_lines, wait_for_end
from tests.support.stack import Stack
from tests.support.wait import wait_until

AFTER = 2.0


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """One node, whose pools are given up for jobs that have waited AFTER seconds."""
    policy = {"TRAINSHED_RECLAIM_WARM_AFTER_SECONDS": str(AFTER)}
    stack = Stack.up(tmp_path / "home", "--nodes", "1", settings=policy)
    yield stack
    stack.down()


def test_the_pool_of_another_volume_size_is_reclaimed_and_the_job_runs(stack: Stack) -> None:
    client = stack.client("sagemaker")

    def create(name: str, volume: int) -> None:
        request = job_request(stack, stack.bucket, name)
        request["AlgorithmSpecification"] |= {
            "ContainerEntrypoint": ["/bin/sh", "-c"],
            "ContainerArguments": [f"echo {name} ran"],
        }
        request["ResourceConfig"] |= {"VolumeSizeInGB": volume, "KeepAlivePeriodInSeconds": 3600}
        client.create_training_job(**request)

    def pool_of(name: str) -> str:
        status = client.describe_training_job(TrainingJobName=name).get("WarmPoolStatus", {}).get("Status")
        return str(status)

    create("keeps", 10)
    wait_for_end(stack, "keeps")
    wait_until(lambda: pool_of("keeps") == "Available", what="the pool is kept")
    create("waits", 20)
    waited = wait_for_end(stack, "waits")
    assert waited["TrainingJobStatus"] == "Completed"
    assert log_lines(stack, "waits") == {"algo-1": ["waits ran"]}
    assert pool_of("keeps") == "Terminated"
    ended = wait_until(lambda: event_of(stack, "keeps", "pool.ended"), what="the end of the pool is told")
    assert re.search(r"job waits has waited \d+ s for instances and no pool matches it", ended["message"])
    assert ended["at"] - waited["CreationTime"].timestamp() >= AFTER - 0.001, "the pool was given up too early"
    assert waited["TrainingStartTime"].timestamp() > ended["at"]


def event_of(stack: Stack, job: str, kind: str) -> dict[str, Any] | None:
    return next((event for event in events_of(stack, job) if event["kind"] == kind), None)
