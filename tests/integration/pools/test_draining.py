"""Draining over the real wire: new jobs go elsewhere, the running one goes on, pools end, a restart keeps it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.integration.core.driving import create, describe, run_until, step_until, until_phase
from tests.integration.pools.test_life import until_pool, warm
from tests.support.api_process import ApiProcess
from tests.support.scripted_agent import ScriptedAgent
from trainshed_service.cli.app import app
from trainshed_service.cli.errors import CommandError
from trainshed_service.embedded.home import Home, HomeConfig
from trainshed_worker.protocol import Phase

Join = Callable[..., ScriptedAgent]


def by_slot(api: ApiProcess) -> list[dict[str, Any]]:
    return sorted(api.rest("/v1/nodes")["nodes"], key=lambda node: int(node["slot"]))


def drain(api: ApiProcess, node_id: str, what: str = "drain", token: str | None = None) -> int:
    return api.call("POST", f"/v1/nodes/{node_id}/{what}", token=token).status_code


def test_a_drained_node_finishes_its_job_keeps_no_pool_and_takes_no_other(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=2)
    create(api, "running", **warm())
    until_phase([agent], Phase.RUNNING, 1)
    (busy,) = [node["id"] for node in by_slot(api) if node["state"] == "leased"]
    (other,) = [node["id"] for node in by_slot(api) if node["state"] == "free"]
    assert [drain(api, busy), drain(api, other)] == [200, 200]
    assert drain(api, busy) == 200  # said twice: as once
    create(api, "waiting")
    step_until(
        [agent],
        lambda: "waits until 1 more node" in str(api.rest("/v1/training-jobs/waiting")["WaitingReason"]),
        what="no node counts for it",
    )
    api.kill()
    api.start()
    agent.report().raise_for_status()
    agent.exits = 0
    run_until(api, [agent], "running", "Completed")  # draining ended nothing
    until_pool(api, [agent], "running", "Terminated")
    step_until([agent], lambda: {node["state"] for node in by_slot(api)} == {"free"}, what="both are empty")
    assert describe(api, "waiting")["SecondaryStatus"] == "Starting"
    assert all(node["drainingSince"] for node in by_slot(api))
    assert drain(api, other, "undrain") == 200
    run_until(api, [agent], "waiting", "Completed")
    (attempt,) = api.rest("/v1/training-jobs/waiting")["Attempts"]
    assert [host["NodeId"] for host in attempt["Hosts"]] == [other]


def test_draining_ends_the_warm_pool_and_says_why(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=2)
    agent.exits = 0
    create(api, "first", 2, **warm(2))
    until_pool(api, [agent], "first", "Available")
    first = by_slot(api)[0]["id"]
    assert drain(api, first) == 200
    until_pool(api, [agent], "first", "Terminated")
    create(api, "one")  # the pool's other node is free for anybody
    run_until(api, [agent], "one", "Completed")
    assert describe(api, "first")["WarmPoolStatus"]["Status"] == "Terminated"


def test_draining_by_command(api: ApiProcess, join: Join) -> None:
    join(api, slots=2)
    home = Home(api.home)
    home.prepare()
    home.write(HomeConfig(account_id=api.bootstrap.account_id, ports={"main": api.port}, token=api.token))

    def command(*words: str) -> str:
        done = CliRunner().invoke(app, [*words, "--home", str(api.home)], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    first = by_slot(api)[0]["id"]
    assert command("drain", first[:12]) == f"{first} takes no new job; its running job goes on\n"
    assert [node["drainingSince"] is None for node in by_slot(api)] == [False, True]
    assert command("nodes").count("draining") == 1
    assert command("drain", first, "--undo") == f"{first} takes jobs again\n"
    assert [node["drainingSince"] for node in by_slot(api)] == [None, None]
    for wanted, words in (("", "2 nodes begin with ''"), ("absent", "no node begins with 'absent'")):
        with pytest.raises(CommandError, match=words):
            command("drain", wanted)


def test_only_administrators_drain_and_only_nodes_that_are_there(api: ApiProcess, join: Join) -> None:
    join(api, slots=1)
    assert api.call("POST", "/v1/users", {"name": "ann"}).status_code == 201
    token = api.call("POST", "/v1/users/ann/tokens", {"name": "t"}).json()["token"]
    (node,) = by_slot(api)
    assert drain(api, node["id"], token=token) == 403
    assert drain(api, "absent") == 404
    assert api.call("POST", f"/v1/nodes/{node['id']}/drain", {"x": 1}).status_code == 400
    assert by_slot(api)[0]["drainingSince"] is None
