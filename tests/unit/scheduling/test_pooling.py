"""Warm pools in the planner: who takes one, which end for whom, and what is said of them."""

from __future__ import annotations

from tests.unit.scheduling.world import C5, M5, job, node, placed, run
from trainshed_service.scheduling import (
    Decision,
    JobQueued,
    NodeFree,
    NodeTaken,
    Place,
    PlannerEvent,
    Policy,
    PoolAvailable,
    PoolEnded,
    QuotaRule,
    Quotas,
    Reclaim,
    Running,
    Tick,
    explain,
    next_wake,
    step,
)

ROLE = "arn:aws:iam::123456789012:role/X"


def pool(name: str, *nodes: str, since: float = 0.0, until: float = 600.0, user: int = 1) -> PoolAvailable:
    return PoolAvailable(name, "k", ROLE, user, C5, nodes, since, until)


def warm(*names: str) -> list[PlannerEvent]:
    return [NodeTaken(name, frozenset()) for name in names]


def keyed(number: int, count: int = 1, user: int = 1, key: str = "k", queued_at: float = 0.0) -> JobQueued:
    return job(number, *[C5] * count, user=user, pool_key=key, queued_at=queued_at)


def pools_of(decisions: list[Decision]) -> dict[int, str | None]:
    return {decision.job.job_id: decision.pool for decision in decisions if isinstance(decision, Place)}


def reclaimed(decisions: list[Decision]) -> list[tuple[str, int]]:
    return [(each.cluster_id, each.for_job_id) for each in decisions if isinstance(each, Reclaim)]


def test_a_matching_job_takes_the_pool_before_free_nodes_and_the_first_to_expire() -> None:
    pools = [pool("late", "a", until=900.0), pool("soon", "b", until=300.0)]
    state, decisions = run(*warm("a", "b"), *pools, node("c"), keyed(1), keyed(2, key="other"))
    assert pools_of(decisions) == {1: "soon", 2: None}
    assert placed(decisions) == {1: ("b",), 2: ("c",)}
    assert state.fleet.pools.keys() == {"late"}


def test_two_jobs_never_get_one_pool() -> None:
    state, decisions = run(*warm("a"), keyed(1), keyed(2), pool("p", "a"))
    assert pools_of(decisions) == {1: "p"}
    assert "1 busy" in str(explain(state, 2))


def test_an_ending_or_expired_pool_takes_nobody_in() -> None:
    state, decisions = run(*warm("a"), pool("p", "a"), PoolEnded("p"), keyed(1))
    assert placed(decisions) == {}
    assert "1 being given back" in str(explain(state, 1))
    state, decisions = step(state, NodeFree("a", frozenset()), 0.0)
    assert pools_of(decisions) == {1: None}
    state, _ = run(*warm("a"), pool("p", "a", until=10.0))
    _, decisions = step(state, keyed(1, queued_at=10.0), 10.0)
    assert placed(decisions) == {}


def test_a_longer_keep_alive_is_taken_note_of() -> None:
    state, _ = run(*warm("a"), pool("p", "a", until=10.0), pool("p", "a", until=100.0))
    _, decisions = step(state, keyed(1, queued_at=50.0), 50.0)
    assert pools_of(decisions) == {1: "p"}


def test_warm_nodes_are_not_free_nodes_and_are_named_with_role_and_time() -> None:
    state, decisions = run(*warm("a"), pool("p", "a", until=43_380.0), job(1, C5))
    assert placed(decisions) == {}
    assert (
        explain(state, 1) == f"Waiting for capacity: needs 1 × {C5}; 0 free, 1 warm for role X until 12:03 UTC, 0 busy"
    )


def test_the_oldest_pools_end_for_a_job_that_has_waited_no_more_than_it_needs() -> None:
    names = ["a", "b", "c", "d"]
    pools = [pool(f"p-{name}", name, since=float(10 - at)) for at, name in enumerate(names)]
    state, decisions = run(*warm(*names), *pools, node("e"), job(1, C5, C5, C5, queued_at=0.0))
    assert reclaimed(decisions) == []
    assert next_wake(state) == 60.0
    state, decisions = step(state, Tick(), 60.0)
    assert reclaimed(decisions) == [("p-d", 1), ("p-c", 1)]
    assert next_wake(state) is None
    state, decisions = step(state, Tick(), 61.0)
    assert reclaimed(decisions) == []
    events = [PoolEnded("p-d"), NodeFree("d", frozenset()), PoolEnded("p-c"), NodeFree("c", frozenset())]
    for event in events:
        state, decisions = step(state, event, 62.0)
    assert placed(decisions) == {1: ("c", "d", "e")}


def test_no_pool_ends_where_that_does_not_help_or_is_not_wanted() -> None:
    state, _ = run(*warm("a", "b"), pool("p", "a"), job(1, C5, C5))
    _, decisions = step(state, Tick(), 100.0)
    assert reclaimed(decisions) == []  # b is busy
    never = Policy(reclaim_warm_after_seconds=None)
    state, _ = run(*warm("a"), pool("p", "a"), job(1, C5), policy=never)
    assert next_wake(state) is None
    state, _ = run(NodeTaken("a", frozenset({C5})), pool("p", "a"), node("m", M5), job(1, M5, M5))
    assert next_wake(state) is None


def test_a_pool_that_the_head_is_entitled_to_is_not_taken_by_a_later_job() -> None:
    running = Running(9, 2, ROLE, ("a",), job(9, C5).members, 0.0, 1e6)
    state, _ = run(*warm("a"), running, job(1, C5, user=1, queued_at=0.0), keyed(2, user=2, queued_at=0.0))
    state, decisions = step(state, pool("p", "a", since=100.0, until=700.0), 100.0)
    assert placed(decisions) == {}
    assert reclaimed(decisions) == [("p", 1)]


def test_a_pool_that_is_taken_over_counts_once_for_a_quota() -> None:
    rules = Quotas((QuotaRule("user", "1", C5, 1, "ann"), QuotaRule("user", "2", C5, 0, "bob")))
    state, decisions = run(rules, *warm("a"), pool("p", "a", user=1), keyed(1, user=2), keyed(2, user=1))
    assert pools_of(decisions) == {2: "p"}
    assert state.quotas.held(rules.rules[0]) == 1


def test_nodes_of_an_agent_that_is_heard_from_later_join_what_runs_on_them() -> None:
    members = job(9, C5, C5).members
    first = Running(9, 1, ROLE, ("a",), members[:1], 0.0, 100.0)
    state, _ = run(*warm("a"), first, *warm("b"), Running(9, 1, ROLE, ("a", "b"), members, 0.0, 100.0))
    (held,) = state.fleet.jobs.values()
    assert (set(held.types), held.counts, state.shares.account(1).held) == ({"a", "b"}, {0: 2}, 2)
    for name in ("a", "b"):
        state, _ = step(state, NodeFree(name, frozenset()), 1.0)
    assert (state.fleet.jobs, state.fleet.free, state.shares.account(1).held) == ({}, [2], 0)


def test_a_job_that_is_tried_again_before_its_last_node_is_back_keeps_its_new_ones() -> None:
    state, decisions = run(node("a"), node("b"), job(1, C5, C5))
    state, _ = step(state, NodeFree("a", frozenset()), 1.0)
    state, _ = step(state, node("c"), 1.0)
    state, decisions = step(state, job(1, C5, C5), 1.0)
    assert placed(decisions) == {1: ("a", "c")}
    state, _ = step(state, NodeFree("b", frozenset()), 2.0)
    assert set(state.fleet.jobs[1].types) == {"a", "c"}
