"""What REST says of the pools: whose they are, and why a spec or a job does or does not match."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.integration.core.driving import create, request, step_until
from tests.integration.pools.test_life import until_pool, warm
from tests.support.api_process import ApiProcess
from tests.support.scripted_agent import ScriptedAgent

Join = Callable[..., ScriptedAgent]


def explained(api: ApiProcess, spec: dict[str, Any]) -> dict[str, Any]:
    answer = api.call("POST", "/v1/pools/explain", spec)
    answer.raise_for_status()
    return dict(answer.json())


def test_each_pool_with_its_job_and_what_differs(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=4)
    agent.exits = 0
    create(api, "filler", 1)
    for name, count in (("single", 1), ("pair", 2)):
        create(api, name, count, **warm(count))
        until_pool(api, [agent], name, "Available")
    found = api.rest("/v1/pools")["pools"]
    assert sorted((pool["job"], pool["status"], len(pool["nodes"])) for pool in found) == [
        ("pair", "Available", 2),
        ("single", "Available", 1),
    ]
    answer = explained(api, request("next", 2, Environment={"A": "b"}))
    nearest, other = answer["pools"]
    assert answer["canMatch"] and nearest["matches"] and nearest["job"] == "pair"
    assert nearest["advice"] == "The next job with these fields starts on it."
    assert other["job"] == "single"
    assert other["differences"] == [{"field": "ResourceConfig.InstanceCount", "wanted": 2, "has": 1}]
    assert "set ResourceConfig.InstanceCount to 1" in other["advice"]
    of_job = api.rest("/v1/training-jobs/pair/pools")
    assert [pool["matches"] for pool in of_job["pools"]] == [True, False]
    assert of_job["waitingReason"] is None


def test_a_heterogeneous_job_is_placed_as_one_gang_and_matches_no_pool(api: ApiProcess, join: Join) -> None:
    groups = [
        {"InstanceGroupName": "data", "InstanceType": "ml.c5.xlarge", "InstanceCount": 1},
        {"InstanceGroupName": "train", "InstanceType": "ml.c5.2xlarge", "InstanceCount": 1},
    ]
    spec = request("mixed")
    spec["ResourceConfig"] = {"InstanceGroups": groups, "VolumeSizeInGB": 10}
    answer = explained(api, spec)
    assert answer["canMatch"] is False and "InstanceGroups" in answer["reason"]
    agent = join(api, slots=2)
    api.client().create_training_job(**spec)
    step_until([agent], lambda: len(agent.held) == 2)
    hosts = {held.assignment.host.name: held.assignment.host for held in agent.held.values()}
    assert {name: (host.instance_type, host.instance_group) for name, host in hosts.items()} == {
        "algo-1": ("ml.c5.xlarge", "data"),
        "algo-2": ("ml.c5.2xlarge", "train"),
    }
