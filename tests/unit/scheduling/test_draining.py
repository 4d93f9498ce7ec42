"""A node that is drained: nothing is placed on it, what holds it goes on counting, and the way back."""

from __future__ import annotations

from tests.unit.scheduling.world import C5, job, node, placed, run
from trainshed_service.jobs.spec import Member
from trainshed_service.scheduling import NodeFree, NodeTaken, PoolAvailable, QuotaRule, Quotas, Running, explain, step
from trainshed_service.scheduling.events import WITHDRAWN
from trainshed_service.scheduling.recording import snapshot

QUOTA = Quotas((QuotaRule("user", "1", C5, 1, "one"),))


def test_a_free_node_takes_no_job_until_it_may_again() -> None:
    state, decisions = run(node("a"), node("b"), NodeFree("a", WITHDRAWN), job(1, C5), job(2, C5), job(3, C5, C5))
    assert placed(decisions) == {1: ("b",)}
    assert "0 free, 1 busy" in str(explain(state, 2))
    assert "waits until 1 more node" in str(explain(state, 3))  # it counts for nobody
    _, decisions = step(state, node("a"), 1.0)
    assert placed(decisions) == {2: ("a",)}


def test_the_running_job_keeps_its_node_and_its_place_in_the_quota() -> None:
    state, decisions = run(QUOTA, node("a"), node("b"), job(1, C5, user=1))
    assert placed(decisions) == {1: ("a",)}
    state, decisions = step(state, NodeTaken("a", WITHDRAWN), 1.0)
    assert not decisions
    assert list(state.fleet.jobs[1].types) == ["a"]
    state, decisions = step(state, job(2, C5, user=1), 2.0)
    assert not placed(decisions) and "quota" in str(explain(state, 2))
    state, decisions = step(state, NodeFree("a", WITHDRAWN), 3.0)  # its job has ended
    assert placed(decisions) == {2: ("b",)}
    state, decisions = step(state, job(4, C5), 4.0)
    assert not placed(decisions)
    _, decisions = step(state, node("a"), 5.0)
    assert placed(decisions) == {4: ("a",)}


def test_ranks_and_ends_stay_when_one_node_of_several_is_drained() -> None:
    running = Running(7, None, "", ("a", "b", "c"), (Member(C5),) * 3, 0.0, 50.0)
    taken = [NodeTaken(name, frozenset()) for name in "abc"]
    state, _ = run(*taken, running, NodeTaken("b", WITHDRAWN), job(8, C5, C5, C5))
    held = state.fleet.jobs[7]
    assert list(held.types) == ["a", "b", "c"] and held.ends_at == 50.0
    assert "waits until 1 more node" in str(explain(state, 8))
    again, _ = run(*snapshot(state))  # what is recorded and restored says the same
    assert list(again.fleet.jobs[7].types) == ["a", "b", "c"]
    assert explain(again, 8) == explain(state, 8)


def test_a_pool_one_of_whose_nodes_is_drained_is_given_to_nobody() -> None:
    pool = PoolAvailable("p", "key", "", None, C5, ("a", "b"), 0.0, 100.0)
    taken = [NodeTaken(name, frozenset()) for name in "ab"]
    state, _ = run(*taken, pool)
    state, _ = step(state, NodeTaken("a", WITHDRAWN), 1.0)
    state, _ = step(state, NodeFree("a", WITHDRAWN), 1.0)
    _, decisions = step(state, job(1, C5, C5, pool_key="key"), 1.0)
    assert not placed(decisions)
