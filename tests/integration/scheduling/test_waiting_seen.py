"""Who waits sees why, behind how many and until when; warm instances end for it, and that is seen too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError
from typer.testing import CliRunner

from tests.integration.core.conftest import api, join, start_api
from tests.integration.core.driving import create, describe, run_until, secondary, step_until, until_phase
from tests.integration.pools.test_life import node_states, pool_of, until_pool, warm
from tests.support.api_process import ApiProcess
from tests.support.scripted_agent import ScriptedAgent
from trainshed_service.cli.app import app
from trainshed_service.embedded.home import Home, HomeConfig
from trainshed_worker.protocol import Phase

__all__ = ["api", "join", "start_api"]
Join = Callable[..., ScriptedAgent]


def queue(api: ApiProcess, query: str = "") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = api.rest(f"/v1/queue{query}")["jobs"]
    return rows


def events(api: ApiProcess, name: str) -> list[tuple[str, str]]:
    return [(each["kind"], each["message"]) for each in api.rest(f"/v1/training-jobs/{name}/events")["events"]]


def listed(api: ApiProcess, *words: str) -> dict[str, str]:
    """Name → the line of `trainshed ps`."""
    home = Home(api.home)
    home.prepare()
    key = api.bootstrap.admin
    home.write(
        HomeConfig(
            account_id=api.bootstrap.account_id,
            ports={"main": api.port, "gateway": 9, "ingest": 9},
            access_key_id=key.access_key_id,
            secret_access_key=key.secret_access_key,
            token=api.token,
            role_arn=api.bootstrap.role_arn,
        )
    )
    done = CliRunner().invoke(app, ["ps", "--home", str(api.home), *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    heading, *lines = done.stdout.splitlines()
    assert heading.split()[-1] == "WAITS"
    return {line.split()[0]: line.rstrip() for line in lines}


def test_the_queue_is_shown_in_order_with_reasons_and_starts(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=2)
    limit = {"StoppingCondition": {"MaxRuntimeInSeconds": 3600}}
    create(api, "runs", 2, **limit)
    until_phase([agent], Phase.RUNNING, 2)
    create(api, "low", Tags=[{"Key": "trainshed:priority", "Value": "-5"}])
    create(api, "first", 2)
    create(api, "never", 3)
    step_until([agent], lambda: len(queue(api)) == 3)
    rows = {row["name"]: row for row in queue(api)}
    assert [row["name"] for row in queue(api)] == ["first", "never", "low"]
    assert [rows[name]["queuePosition"] for name in ("first", "never", "low")] == [0, 1, 2]
    assert rows["first"]["waitingReason"] == "Waiting for capacity: needs 2 × ml.c5.xlarge; 0 free, 2 busy"
    assert "1 more node for ml.c5.xlarge join" in rows["never"]["waitingReason"]
    assert rows["low"]["waitingReason"].endswith("2 jobs ahead in the queue")
    begun = describe(api, "runs")["CreationTime"].timestamp()
    assert begun + 3500 < rows["first"]["projectedStart"] < begun + 3700
    assert rows["never"]["projectedStart"] is None
    assert rows["low"]["projectedStart"] >= rows["first"]["projectedStart"] + 3600
    assert [row["name"] for row in queue(api, "?limit=1")] == ["first"]

    lines = listed(api)
    assert "#1: needs 2 × ml.c5.xlarge; 0 free, 2 busy; about 20" in lines["first"]
    assert "#2: needs 3 × ml.c5.xlarge" in lines["never"] and "#3: " in lines["low"]
    assert lines["runs"].split()[1:3] == ["InProgress", "Training"] and "#" not in lines["runs"]

    api.client().stop_training_job(TrainingJobName="first")
    assert [row["name"] for row in queue(api)] == ["never", "low"]
    agent.exits = 0
    for name in ("runs", "low"):
        run_until(api, [agent], name, "Completed")
    assert [row["name"] for row in queue(api)] == ["never"]
    assert "#" not in listed(api)["low"]


def test_a_warm_pool_ends_for_a_job_that_has_waited_and_says_so(
    start_api: Callable[..., ApiProcess], join: Join
) -> None:
    api = start_api(reclaim_warm_after_seconds=4)
    agent = join(api, slots=2)
    agent.exits = 0
    for name in ("older", "newer"):
        create(api, name, **warm(VolumeSizeInGB=30 if name == "older" else 40))
        run_until(api, [agent], name, "Completed")
        until_pool(api, [agent], name, "Available")
    create(api, "waits", **warm(VolumeSizeInGB=50, seconds=0))
    (row,) = queue(api)
    assert row["waitingReason"].startswith("Waiting for capacity: needs 1 × ml.c5.xlarge; 0 free, 2 warm for role ")
    run_until(api, [agent], "waits", "Completed")
    assert pool_of(api, "older")["Status"] == "Terminated"
    assert pool_of(api, "newer")["Status"] == "Available"
    ((_, ended),) = [each for each in events(api, "older") if each[0] == "pool.ended"]
    assert "job waits has waited" in ended and "no pool matches it" in ended
    assert not [each for each in events(api, "newer") if each[0] == "pool.ended"]
    assert secondary(api, "waits")[0] == "Starting"
    step_until([agent], lambda: node_states(api) == ["free", "warm"])


def test_what_was_asked_for_is_what_is_described(api: ApiProcess, join: Join) -> None:
    """A controller that compares the two does not see a change; what is refused is not taken silently."""
    agent = join(api, slots=2)
    agent.exits = 0
    asked = warm(2, seconds=77)
    create(api, "echoed", 2, **asked)
    assert describe(api, "echoed")["ResourceConfig"] == asked["ResourceConfig"]
    run_until(api, [agent], "echoed", "Completed")
    assert describe(api, "echoed")["ResourceConfig"] == asked["ResourceConfig"]
    limits = {"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 3600}
    with pytest.raises(ClientError, match="KeepAlivePeriodInSeconds"):
        create(api, "spot", EnableManagedSpotTraining=True, StoppingCondition=limits, **warm())
