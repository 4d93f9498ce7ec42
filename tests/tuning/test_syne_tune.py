"""Syne Tune's SageMaker backend, unmodified: a search with early stopping whose trials share a few warm pools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import result_of
from tests.support.stack import REPOSITORY, Stack, run

HERE = Path(__file__).parent
TYPE = "ml.c5.xlarge"
WORKERS, TRIALS, EPOCHS = 4, 20, 27


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """More nodes than the search has workers: a trial that is not given a pool shows as another warm node."""
    stack = Stack.up(tmp_path / "the home", "--nodes", str(2 * WORKERS))
    yield stack
    stack.down()


def details(stack: Stack, names: list[str]) -> dict[str, dict[str, Any]]:
    client = stack.client("sagemaker")
    return {name: client.describe_training_job(TrainingJobName=name) for name in names}


@pytest.mark.timeout(900)
def test_a_search_with_early_stopping_over_warm_pools(stack: Stack, tmp_path: Path) -> None:
    python = run("python3", REPOSITORY / "scripts" / "client_env.py", "syne-tune", timeout=900).stdout.split()[-1]
    environment = {**stack.env, "SYNETUNE_FOLDER": str(tmp_path / "results"), "HOME": str(tmp_path)}
    numbers = [str(number) for number in (WORKERS, TRIALS, EPOCHS)]
    done = run(python, HERE / "search.py", HERE / "source", TYPE, *numbers, env=environment, timeout=800)
    seen = result_of(done.stdout)
    jobs = details(stack, list(seen["jobs"].values()))

    assert TRIALS <= len(jobs) < TRIALS + WORKERS  # it starts as many as there are workers free
    statuses = [job["TrainingJobStatus"] for job in jobs.values()]
    assert set(statuses) == {"Completed", "Stopped"}, done.stderr[-6000:]
    assert statuses.count("Stopped") >= TRIALS // 4
    by_trial = {trial: jobs[name]["TrainingJobStatus"] for trial, name in seen["jobs"].items()}
    whole = [trial for trial, status in by_trial.items() if status == "Completed"]
    assert all(seen["epochs"][trial] == EPOCHS for trial in whole)
    stopped = [trial for trial, status in by_trial.items() if status == "Stopped"]
    assert min(seen["epochs"][trial] for trial in stopped) < EPOCHS // 3

    # Every trial but the first of each worker started on the pool of one before it.
    pools = [job["WarmPoolStatus"] for job in jobs.values()]
    reused = [pool["ReusedByJob"] for pool in pools if pool["Status"] == "Reused"]
    assert len(reused) == len(set(reused)) == len(jobs) - WORKERS, json.dumps(pools)
    assert set(reused) < set(jobs)
    assert [pool["Status"] for pool in pools if pool["Status"] != "Reused"] == ["Available"] * WORKERS
