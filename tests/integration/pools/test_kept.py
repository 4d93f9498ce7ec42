"""What an agent hears of the warm pools on its nodes, and when."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tests.integration.core.driving import create, run_until, until_phase
from tests.integration.pools.test_life import until_pool, update, warm
from tests.support.api_process import ApiProcess
from tests.support.scripted_agent import ScriptedAgent
from trainshed_worker.protocol import DesiredState, Phase

Join = Callable[..., ScriptedAgent]


def kept(agent: ScriptedAgent) -> list[str]:
    return agent.desired().kept_clusters


def next_state(agent: ScriptedAgent, change: Callable[[], object]) -> DesiredState:
    """The answer to a poll that waits while `change` is made."""
    agent.desired()
    answers: list[DesiredState] = []
    poll = threading.Thread(target=lambda: answers.append(agent.desired(wait=20)))
    poll.start()
    change()
    poll.join(25)
    assert answers, "the poll was not answered"
    return answers[0]


def test_a_cluster_is_kept_from_the_end_of_its_job_to_the_end_of_the_pool(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=2)
    create(api, "first", 2, **warm(2))
    until_phase([agent], Phase.RUNNING, 2)
    (cluster,) = {item.cluster_id for item in agent.desired().assignments}
    assert kept(agent) == []  # it has its assignments
    agent.exits = 0
    run_until(api, [agent], "first", "Completed")
    assert kept(agent) == [cluster]  # before its slots are empty
    until_pool(api, [agent], "first", "Available")
    assert agent.desired().assignments == []
    assert kept(agent) == [cluster]
    ended = next_state(agent, lambda: update(api, "first", 0))
    assert ended.kept_clusters == []


def test_a_pool_that_a_job_takes_is_named_by_the_job_and_then_by_the_pool(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=1)
    agent.exits = 0
    create(api, "one", 1, **warm())
    until_pool(api, [agent], "one", "Available")
    (cluster,) = kept(agent)
    agent.exits = None
    create(api, "two", 1, **warm())
    until_phase([agent], Phase.RUNNING, 1)
    state = agent.desired()
    assert ([item.cluster_id for item in state.assignments], state.kept_clusters) == ([cluster], [])
    assert state.assignments[0].start_when_ready
    agent.exits = 0
    until_pool(api, [agent], "two", "Available")
    assert kept(agent) == [cluster]


def test_a_job_without_keep_alive_leaves_nothing_kept(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=1)
    agent.exits = 0
    create(api, "plain")
    run_until(api, [agent], "plain", "Completed")
    assert kept(agent) == []


def test_a_pool_that_expires_wakes_the_agent(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=1)
    agent.exits = 0
    create(api, "short", 1, **warm(seconds=2))
    until_pool(api, [agent], "short", "Available")
    assert next_state(agent, lambda: None).kept_clusters == []
