"""The planner's rules one by one: gangs, order, what holds back whom, retries, and the reasons it gives."""

from __future__ import annotations

from typing import Any

from tests.unit.scheduling.world import C5, M5, ODD, job, node, placed, reasons, run
from trainshed_service.scheduling import (
    GiveUp,
    JobGone,
    NodeFree,
    NodeTaken,
    QuotaRule,
    Quotas,
    Running,
    Tick,
    Usage,
    explain,
    next_wake,
    step,
)
from trainshed_service.scheduling.preview import Projection, preview

HOUR = 3600.0


def test_a_gang_is_placed_whole_or_waits_with_a_reason() -> None:
    state, decisions = run(node("a"), node("b"), job(1, C5), job(2, C5, C5))
    assert placed(decisions) == {1: ("a",)}
    assert reasons(decisions) == {2: f"Waiting for capacity: needs 2 × {C5}; 1 free, 1 busy"}
    assert state.waits == reasons(decisions)
    _, more = step(state, node("a"), 0.0)
    assert placed(more) == {2: ("a", "b")}


def test_an_equal_job_does_not_overtake() -> None:
    state, decisions = run(node("a"), node("b"), job(1, C5), job(2, C5, C5), job(3, C5, seconds=30 * HOUR))
    assert list(placed(decisions)) == [1]
    assert "1 job ahead in the queue" in str(explain(state, 3))
    assert "kept for jobs ahead" in str(explain(state, 3))


def test_a_job_that_can_never_fit_is_told_and_blocks_nobody() -> None:
    state, decisions = run(node("a"), job(1, C5, C5), job(2, ODD), job(3, C5))
    assert list(placed(decisions)) == [3]
    assert "waits until 1 more node for ml.c5.xlarge join" in str(explain(state, 1))
    assert "not a known instance type" in str(explain(state, 2))
    state, _ = step(state, node("a"), 0.0)
    _, more = step(state, node("b"), 0.0)
    assert list(placed(more)) == [1]


def test_types_are_matched_even_where_a_greedy_choice_fails() -> None:
    _, decisions = run(node("x", C5, M5), node("y", C5), job(1, C5, M5))
    assert placed(decisions) == {1: ("y", "x")}


def test_nodes_that_name_a_type_are_taken_before_those_that_become_any() -> None:
    _, decisions = run(node("a"), node("b", C5), job(1, C5))
    assert placed(decisions) == {1: ("b",)}


def test_a_node_to_avoid_is_taken_last() -> None:
    _, decisions = run(node("a"), node("b"), job(1, C5, avoid=frozenset({"a"})))
    assert placed(decisions) == {1: ("b",)}
    _, decisions = run(node("a"), job(1, C5, avoid=frozenset({"a"})))
    assert placed(decisions) == {1: ("a",)}
    _, decisions = run(node("a", C5), node("b"), job(1, C5, avoid=frozenset({"a"})))
    assert placed(decisions) == {1: ("b",)}


def test_a_job_that_is_gone_lets_the_next_one_in() -> None:
    state, _ = run(node("a"), node("b"), job(1, C5), job(2, C5, C5), job(3, C5, seconds=30 * HOUR))
    _, more = step(state, JobGone(2), 0.0)
    assert list(placed(more)) == [3]


def test_a_retried_job_goes_before_those_that_came_later() -> None:
    state, _ = run(NodeTaken("a", frozenset()), NodeTaken("b", frozenset()), job(2, C5, C5), job(4, C5))
    assert set(state.heads.values()) == {2}
    state, decisions = step(state, job(1, C5), 0.0)
    assert set(state.heads.values()) == {1}
    assert list(reasons(decisions)) == [1]
    _, decisions = step(state, node("a"), 0.0)
    assert list(placed(decisions)) == [1]


def test_a_higher_priority_goes_first_whatever_was_used() -> None:
    events = [NodeTaken("a", frozenset()), Usage(1, 1e9, 0.0), job(1, C5, user=2), job(2, C5, user=1, priority=5)]
    state, _ = run(*events)
    _, decisions = step(state, node("a"), 0.0)
    assert list(placed(decisions)) == [2]


def test_who_has_used_less_goes_first() -> None:
    state, _ = run(NodeTaken("a", frozenset()), Usage(1, 100.0, 0.0), job(1, C5, user=1), job(2, C5, user=2))
    _, decisions = step(state, node("a"), 0.0)
    assert list(placed(decisions)) == [2]


def test_users_take_turns_at_one_moment() -> None:
    taken = [NodeTaken(name, frozenset()) for name in "abcd"]
    queue = [job(number, C5, user=1 if number <= 4 else 2) for number in range(1, 9)]
    state, _ = run(*taken, *queue)
    order: list[int] = []
    for name in "abcd":
        state, decisions = step(state, node(name), 0.0)
        order += placed(decisions)
    assert order == [1, 5, 2, 6]


def test_what_runs_counts_from_moment_to_moment() -> None:
    """Ann's job runs for an hour before bob's starts; then both have one: she has used more."""
    state, _ = run(node("a"), node("b"), job(1, C5, user=1))
    state, _ = step(state, job(2, C5, user=2), HOUR)
    state, _ = step(state, job(3, C5, user=1), HOUR)
    state, _ = step(state, job(4, C5, user=2), HOUR)
    _, decisions = step(state, node("c"), HOUR + 1)
    assert list(placed(decisions)) == [4]
    assert state.shares.used(1, HOUR) > state.shares.used(2, HOUR)


def test_a_short_job_overtakes_one_that_starts_later_anyhow() -> None:
    """b is busy for an hour by its limit: a job of half an hour on a delays nobody, one of two hours does."""
    start = [node("a"), node("b"), job(1, C5, seconds=HOUR), job(2, C5, C5)]
    state, decisions = run(*start, job(3, C5, seconds=2 * HOUR), job(4, C5, seconds=HOUR / 2))
    assert list(placed(decisions)) == [1, 4]
    assert "kept for jobs ahead" not in str(explain(state, 3))  # nothing is free


def test_a_long_job_overtakes_on_nodes_that_the_head_will_not_need() -> None:
    """When b and c come free the head has what it needs without a."""
    running = Running(9, None, "", ("b", "c"), job(9, C5, C5).members, 0.0, HOUR)
    taken = [NodeTaken("b", frozenset()), NodeTaken("c", frozenset())]
    _, decisions = run(node("a"), *taken, running, job(1, C5, C5), job(2, C5, seconds=9 * HOUR))
    assert list(placed(decisions)) == [2]


def test_jobs_of_other_types_do_not_wait_for_each_other() -> None:
    _, decisions = run(node("a", C5), node("b", M5), job(1, C5, C5), job(2, M5))
    assert list(placed(decisions)) == [2]
    _, decisions = run(NodeTaken("a", frozenset({C5})), node("b", M5), job(1, C5), job(2, M5))
    assert list(placed(decisions)) == [2]


def test_a_new_job_behind_one_like_it_looks_at_nothing(monkeypatch: Any) -> None:
    state, _ = run(node("a"), *(job(number, C5, C5) for number in range(1, 1001)))
    monkeypatch.setattr("trainshed_service.scheduling.planner.Walk", None)
    state, decisions = step(state, job(1001, C5, C5), 0.0)
    assert decisions == []
    assert len(state.queue) == 1001


def test_a_quota_makes_a_job_wait_and_holds_back_nobody() -> None:
    rule = QuotaRule("user", "1", C5, 1, "ann")
    state, decisions = run(
        Quotas((rule,)), node("a"), node("b"), node("c"), job(1, C5, user=1), job(2, C5, user=1), job(3, C5, user=2)
    )
    assert list(placed(decisions)) == [1, 3]
    assert explain(state, 2) == f"Waiting: quota: user ann may hold 1 {C5} at once, holds 1"
    state, decisions = step(state, node("a"), 0.0)
    assert list(placed(decisions)) == [2]


def test_a_raised_quota_lets_waiting_jobs_in() -> None:
    rule = QuotaRule("all", "*", "*", 1)
    state, _ = run(Quotas((rule,)), node("a"), node("b"), job(1, C5), job(2, M5))
    assert "all together may hold 1 instances at once, hold 1" in str(explain(state, 2))
    _, decisions = step(state, Quotas(()), 0.0)
    assert list(placed(decisions)) == [2]


def test_a_quota_on_all_types_frees_jobs_of_another_type() -> None:
    rule = QuotaRule("role", "arn:r", "*", 1, "r")
    nodes = [node("a", C5), node("b", M5)]
    state, _ = run(Quotas((rule,)), *nodes, job(1, C5, role="arn:r"), job(2, M5, role="arn:r"))
    assert "quota: role r" in str(explain(state, 2))
    _, decisions = step(state, node("a", C5), 0.0)
    assert list(placed(decisions)) == [2]


def test_a_job_gives_up_when_it_has_waited_as_long_as_it_wanted() -> None:
    state, _ = run(NodeTaken("a", frozenset()), job(1, "ml.p3.2xlarge", give_up_at=1800.0), job(2, C5))
    assert next_wake(state) == 1800.0
    state, decisions = step(state, Tick(), 1799.0)
    assert decisions == []
    state, decisions = step(state, Tick(), 1800.0)
    given_up = [decision for decision in decisions if isinstance(decision, GiveUp)]
    assert [decision.job_id for decision in given_up] == [1]
    assert given_up[0].reason.startswith("CapacityError: Unable to provision requested ML compute capacity.")
    assert next_wake(state) is None
    assert list(state.queue.jobs) == [2]


def test_projected_starts_follow_limits_and_what_was_seen() -> None:
    running = Running(9, None, "", ("a",), job(9, C5).members, 0.0, HOUR, expected_end=600.0)
    queue = [job(1, C5, expected=100.0), job(2, C5, seconds=50.0), job(3, C5, C5)]
    state, _ = run(NodeTaken("a", frozenset()), running, *queue)
    assert Projection(state, 0.0).starts == {1: 600.0, 2: 700.0}
    assert Projection(state, 601.0).starts[1] == 661.0


def test_a_preview_says_what_a_new_job_would_get_and_changes_nothing() -> None:
    state, _ = run(node("a"), node("b"), job(1, C5, seconds=HOUR), job(2, C5, C5))
    found = preview(state, job(99, C5, seconds=60.0), 1.0)
    assert (found.nodes, found.reason, found.projected_start) == (("b",), None, 0.0 + 1.0)
    found = preview(state, job(99, C5, seconds=9 * HOUR), 1.0)
    assert found.nodes is None
    assert found.ahead == 1
    assert "kept for jobs ahead" in str(found.reason)
    assert found.projected_start is not None
    assert (list(state.queue.jobs), state.now, state.fleet.free) == ([2], 0.0, [1])
    _, decisions = step(state, NodeFree("a", frozenset()), 2.0)
    assert placed(decisions) == {2: ("a", "b")}
