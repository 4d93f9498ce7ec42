"""The life of a warm pool over the real wire: kept, shown, changed, ended; and when none remains."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.integration.core.driving import create, describe, request, run_until, step_until, until_phase
from tests.support.api_process import ApiProcess
from tests.support.scripted_agent import ScriptedAgent
from tests.support.wait import wait_until
from trainshed_worker.protocol import FailureCause, Phase

Join = Callable[..., ScriptedAgent]


def warm(count: int = 1, seconds: int = 600, **resources: Any) -> dict[str, Any]:
    return {
        "ResourceConfig": {
            "InstanceType": "ml.c5.xlarge",
            "InstanceCount": count,
            "VolumeSizeInGB": 10,
            "KeepAlivePeriodInSeconds": seconds,
            **resources,
        }
    }


def pool_of(api: ApiProcess, name: str) -> dict[str, Any]:
    return dict(describe(api, name).get("WarmPoolStatus") or {})


def until_pool(api: ApiProcess, agents: list[ScriptedAgent], name: str, status: str) -> dict[str, Any]:
    step_until(agents, lambda: pool_of(api, name).get("Status") == status, what=f"the pool of {name} is {status}")
    return pool_of(api, name)


def update(api: ApiProcess, name: str, seconds: int) -> None:
    api.client().update_training_job(TrainingJobName=name, ResourceConfig={"KeepAlivePeriodInSeconds": seconds})


def node_states(api: ApiProcess) -> list[str]:
    return sorted(node["state"] for node in api.rest("/v1/nodes")["nodes"])


def test_a_pool_is_kept_after_success_and_shown_until_it_expires(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=2)
    create(api, "first", 2, **warm(2, seconds=3))
    until_phase([agent], Phase.RUNNING, 2)
    assert pool_of(api, "first") == {"Status": "InUse"}
    agent.exits = 0
    run_until(api, [agent], "first", "Completed")
    until_pool(api, [agent], "first", "Available")
    assert node_states(api) == ["warm", "warm"]
    listed = api.client().list_training_jobs(WarmPoolStatusEquals="Available")["TrainingJobSummaries"]
    assert [(row["TrainingJobName"], row["WarmPoolStatus"]["Status"]) for row in listed] == [("first", "Available")]
    with pytest.raises(ClientError, match="still has a warm pool"):
        api.client().delete_training_job(TrainingJobName="first")
    ended = until_pool(api, [agent], "first", "Terminated")
    assert ended["ResourceRetainedBillableTimeInSeconds"] == pytest.approx(3, abs=1)
    assert node_states(api) == ["free", "free"]
    assert api.client().list_training_jobs(WarmPoolStatusEquals="Available")["TrainingJobSummaries"] == []
    api.client().delete_training_job(TrainingJobName="first")


def test_a_matching_job_takes_the_pool_and_the_chain_goes_on(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=4)
    agent.exits = 0
    create(api, "one", 2, **warm(2))
    until_pool(api, [agent], "one", "Available")
    create(api, "two", 2, **warm(2), Environment={"OTHER": "values"})
    run_until(api, [agent], "two", "Completed")
    taken = pool_of(api, "one")
    assert (taken["Status"], taken["ReusedByJob"]) == ("Reused", "two")
    until_pool(api, [agent], "two", "Available")
    assert node_states(api) == ["free", "free", "warm", "warm"]
    with pytest.raises(ClientError, match="taken by another job"):
        update(api, "one", 60)
    create(api, "last", 2)
    run_until(api, [agent], "last", "Completed")
    assert pool_of(api, "two")["ReusedByJob"] == "last"
    assert until_pool(api, [agent], "last", "Terminated")["ResourceRetainedBillableTimeInSeconds"] == 0
    step_until([agent], lambda: node_states(api) == ["free"] * 4)


def test_the_next_job_waits_while_the_instances_of_the_last_one_are_emptied(
    start_api: Callable[..., ApiProcess], join: Join
) -> None:
    """Also where others are free."""
    api = start_api(pool_coming_seconds=300)
    agent = join(api, slots=2)
    agent.exits = 0
    create(api, "last", **warm())
    agent.frozen_at["algo-1"] = Phase.FINISHED  # it does not say that its slot is empty
    run_until(api, [agent], "last", "Completed")
    create(api, "next", **warm())
    create(api, "other", **warm(VolumeSizeInGB=20))  # is placed after it
    wait_until(lambda: "being emptied" in str(api.rest("/v1/training-jobs/next")["WaitingReason"]))
    assert node_states(api) == ["free", "leased"]
    agent.frozen_at.clear()
    run_until(api, [agent], "next", "Completed")
    assert pool_of(api, "last")["ReusedByJob"] == "next"


@pytest.mark.parametrize("end", ["stopped", "failed"])
def test_a_pool_is_kept_after_a_stop_and_an_algorithm_failure(api: ApiProcess, join: Join, end: str) -> None:
    agent = join(api, slots=1)
    create(api, end, **warm())
    until_phase([agent], Phase.RUNNING, 1)
    if end == "stopped":
        api.client().stop_training_job(TrainingJobName=end)
        run_until(api, [agent], end, "Stopped")
    else:
        agent.exit("algo-1", 1, "ValueError")
        run_until(api, [agent], end, "Failed")
    until_pool(api, [agent], end, "Available")


def test_no_pool_after_a_node_fault(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=1)
    create(api, "faulty", **warm())
    until_phase([agent], Phase.RUNNING, 1)
    agent.exit("algo-1", 1, "the disk is broken", cause=FailureCause.NODE)
    run_until(api, [agent], "faulty", "Failed")
    until_pool(api, [agent], "faulty", "Terminated")
    step_until([agent], lambda: node_states(api) == ["free"])


def test_a_pool_ends_when_one_of_its_nodes_goes(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=2)
    agent.exits = 0
    create(api, "pair", 2, **warm(2))
    until_pool(api, [agent], "pair", "Available")
    agent.quarantined[agent.node_ids[0]] = "its disk is broken"
    agent.report().raise_for_status()
    assert pool_of(api, "pair")["Status"] == "Terminated"
    assert node_states(api) == ["free", "quarantined"]


def test_the_keep_alive_is_extended_shortened_and_ended(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=1)
    create(api, "kept", **warm(seconds=2))
    until_phase([agent], Phase.RUNNING, 1)
    with pytest.raises(ClientError, match="in status InProgress"):
        update(api, "kept", 60)
    agent.exits = 0
    until_pool(api, [agent], "kept", "Available")
    began = time.time()
    update(api, "kept", 600)
    assert describe(api, "kept")["ResourceConfig"]["KeepAlivePeriodInSeconds"] == 600
    wait_until(lambda: time.time() > began + 2.5, every=0.05)
    found = pool_of(api, "kept")
    assert found["Status"] == "Available"
    assert found["ResourceRetainedBillableTimeInSeconds"] in (2, 3, 4)
    with pytest.raises(ClientError, match="less than or equal to 3600"):
        update(api, "kept", 3601)
    update(api, "kept", 0)
    assert pool_of(api, "kept")["Status"] == "Terminated"
    assert node_states(api) == ["free"]
    with pytest.raises(ClientError, match="has been terminated"):
        update(api, "kept", 60)


def test_a_job_without_a_keep_alive_has_no_pool(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=1)
    agent.exits = 0
    create(api, "plain")
    found = run_until(api, [agent], "plain", "Completed")
    assert "WarmPoolStatus" not in found
    with pytest.raises(ClientError, match="created without a KeepAlivePeriodInSeconds"):
        update(api, "plain", 60)


def test_the_policy_limits_the_period_at_create(start_api: Callable[..., ApiProcess]) -> None:
    api = start_api(max_keep_alive_seconds=100)
    spec = request("long", **warm(seconds=101))
    with pytest.raises(ClientError, match="less than or equal to 100") as caught:
        api.client().create_training_job(**spec)
    assert caught.value.response["Error"]["Code"] == "ValidationException"


def test_the_instances_are_given_back_at_the_end_of_the_clusters_life(
    start_api: Callable[..., ApiProcess], join: Join
) -> None:
    api = start_api(max_cluster_life_seconds=0.01)
    agent = join(api, slots=1)
    agent.exits = 0
    create(api, "old", **warm())
    until_pool(api, [agent], "old", "Terminated")
    step_until([agent], lambda: node_states(api) == ["free"])


def test_a_pool_outlives_the_service_and_its_agent(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=1)
    agent.exits = 0
    create(api, "before", **warm())
    until_pool(api, [agent], "before", "Available")
    api.kill()
    api.start()
    agent.restart()
    agent.report().raise_for_status()
    assert pool_of(api, "before")["Status"] == "Available"
    create(api, "after", **warm())
    run_until(api, [agent], "after", "Completed")
    assert pool_of(api, "before")["ReusedByJob"] == "after"
