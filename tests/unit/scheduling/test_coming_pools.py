"""A pool that is still being emptied: the next job that it matches waits for it, though other nodes are free."""

from __future__ import annotations

import pytest

from tests.unit.scheduling.test_pooling import ROLE, keyed, pool, pools_of, reclaimed, warm
from tests.unit.scheduling.world import C5, job, node, placed, reasons, run
from trainshed_service.scheduling import (
    JobGone,
    NodeFree,
    PlannerEvent,
    PoolComing,
    PoolEnded,
    Running,
    Tick,
    explain,
    next_wake,
    restore,
    step,
)
from trainshed_service.scheduling.codec import event_of, event_record
from trainshed_service.scheduling.preview import preview
from trainshed_service.scheduling.recording import snapshot


def coming(name: str, *nodes: str, by: float = 5.0, user: int = 1) -> list[PlannerEvent]:
    """A job ends on these nodes, and they are going to be a pool."""
    members = job(90, *[C5] * len(nodes)).members
    ended = Running(90, user, ROLE, nodes, members, 0.0, 1e6)
    return [*warm(*nodes), ended, PoolComing(name, "k", ROLE, user, C5, nodes, by)]


def test_the_first_job_that_it_matches_waits_for_it_and_takes_it() -> None:
    state, decisions = run(*coming("p", "a"), node("b"), node("c"), keyed(1), keyed(2))
    assert placed(decisions) == {2: ("b",)}
    assert "being emptied" in str(explain(state, 1)) and "being emptied" in reasons(decisions)[1]
    state, decisions = step(state, pool("p", "a"), 0.3)
    assert pools_of(decisions) == {1: "p"}
    assert not state.coming and next_wake(state) is None


@pytest.mark.parametrize("why", ["late", "ended"])
def test_where_it_does_not_come_the_job_starts_elsewhere(why: str) -> None:
    state, decisions = run(*coming("p", "a"), node("b"), keyed(1))
    assert placed(decisions) == {}
    assert next_wake(state) == 5.0
    if why == "late":
        state, decisions = step(state, Tick(), 5.0)
    else:
        state, decisions = step(state, PoolEnded("p"), 1.0)
    assert placed(decisions) == {1: ("b",)}
    assert next_wake(state) is None


def test_others_start_only_beside_the_nodes_that_it_would_start_on_else() -> None:
    state, decisions = run(*coming("p", "a"), node("b"), keyed(1), keyed(2, key="other"))
    assert placed(decisions) == {}
    state, decisions = step(state, pool("p", "a"), 0.3)
    assert pools_of(decisions) == {1: "p", 2: None}


def test_each_of_several_is_promised_to_one_job() -> None:
    state, decisions = run(*coming("p", "a"), *coming("q", "b"), *map(node, "cde"), *(keyed(n) for n in range(1, 4)))
    assert placed(decisions) == {3: ("c",)}
    state, decisions = step(state, pool("q", "b"), 0.1)
    assert pools_of(decisions) == {1: "q"}
    _, decisions = step(state, pool("p", "a"), 0.2)
    assert pools_of(decisions) == {2: "p"}


def test_a_job_that_goes_leaves_its_promise_to_the_next() -> None:
    state, _ = run(*coming("p", "a"), node("b"), keyed(1), keyed(2, count=2, key="k2"), keyed(3))
    assert "being emptied" not in str(explain(state, 2))
    state, decisions = step(state, JobGone(1), 0.1)
    assert placed(decisions) == {}
    _, decisions = step(state, pool("p", "a"), 0.2)
    assert pools_of(decisions) == {3: "p"}


def test_it_is_not_promised_to_who_cannot_take_it() -> None:
    avoiding = job(1, C5, pool_key="k", avoid=frozenset("a"))
    _, decisions = run(*coming("p", "a"), node("b"), avoiding)
    assert placed(decisions) == {1: ("b",)}
    _, decisions = run(*coming("p", "a"), node("b"), keyed(1, key="other"))
    assert placed(decisions) == {1: ("b",)}


def test_no_other_pool_ends_for_a_job_whose_own_is_coming() -> None:
    other = pool("other", "b", until=900.0)
    state, _ = run(*warm("b"), keyed(1, queued_at=-100.0), *coming("p", "a"))
    _, decisions = step(state, PoolComing("q", "k", ROLE, 1, C5, ("a",), 5.0), 0.0)
    assert reclaimed(decisions) == []
    state, decisions = run(*coming("p", "a"), *warm("b"), other, job(1, C5, pool_key="k", queued_at=-100.0))
    assert pools_of(decisions) == {1: "other"}


def test_a_preview_and_a_restart_know_of_it() -> None:
    state, _ = run(*coming("p", "a"), node("b"))
    answer = preview(state, keyed(1), 0.0)
    assert answer.nodes is None and "being emptied" in str(answer.reason)
    state, _ = step(state, keyed(2), 0.0)
    events = [event_of(event_record(event)) for event in snapshot(state)]
    anew, decisions = restore(events, 1.0)
    assert placed(decisions) == {} and anew.coming == state.coming
    _, decisions = step(anew, NodeFree("c", frozenset()), 6.0)
    assert placed(decisions) == {2: ("b",)}
