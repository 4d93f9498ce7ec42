"""A node that is drained: nothing is placed on it, what holds it goes on counting, and the way back."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.depth import examples
from tests.unit.scheduling.world import C5, job, node, placed, run
from trainshed_service.jobs.spec import Member
from trainshed_service.scheduling import (
    NodeFree,
    NodeTaken,
    PlannerEvent,
    PoolAvailable,
    QuotaRule,
    Quotas,
    Running,
    explain,
    step,
)
from trainshed_service.scheduling.events import WITHDRAWN
from trainshed_service.scheduling.recording import snapshot

QUOTA = Quotas((QuotaRule("user", "1", C5, 1, "one"),))


def test_a_free_node_takes_no_job_until_it_may_again() -> None:
    state, decisions = run(node("a"), node("b"), NodeFree("a", WITHDRAWN), job(1, C5), job(2, C5), job(3, C5, C5))
    assert placed(decisions) == {1: ("b",)}
    assert "0 free, 1 busy" in str(explain(state, 2))
    said = str(explain(state, 3))
    assert "waits until 1 more node" in said and "; 1 is being drained" in said  # it counts for nobody
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


SCRIPT = st.lists(
    st.one_of(
        st.tuples(st.just("job"), st.integers(1, 3)),
        st.tuples(st.just("finish"), st.integers(0, 5)),
        st.tuples(st.sampled_from(["drain", "undo"]), st.sampled_from("abcd")),
    ),
    max_size=40,
)


@settings(max_examples=examples(80), deadline=None)
@given(SCRIPT)
def test_whatever_is_drained_when_nothing_is_placed_on_it_and_no_job_is_forgotten(
    script: list[tuple[str, Any]],
) -> None:
    state, _ = run(*(node(name) for name in "abcd"))
    drained: set[str] = set()
    running: dict[int, tuple[str, ...]] = {}
    asked: set[int] = set()

    def tell(*events: PlannerEvent) -> None:
        for event in events:
            _, decisions = step(state, event, 0.0)
            for number, names in placed(decisions).items():
                assert drained.isdisjoint(names)
                assert not any(set(names) & set(held) for held in running.values())
                running[number] = names
        for cls in state.fleet.classes:
            held = sum(holding.counts.get(cls.index, 0) for holding in state.fleet.jobs.values())
            assert state.fleet.free[cls.index] + held == cls.present

    def mark(name: str) -> None:
        busy = any(name in names for names in running.values())
        tell((NodeTaken if busy else NodeFree)(name, WITHDRAWN if name in drained else frozenset()))

    def finish(number: int) -> None:
        for name in running.pop(number):
            tell(NodeFree(name, WITHDRAWN if name in drained else frozenset()))

    for kind, value in script:
        if kind == "job":
            number = len(asked) + 1
            asked.add(number)
            tell(job(number, *[C5] * value))
        elif kind == "finish" and running:
            finish(sorted(running)[value % len(running)])
        elif kind in ("drain", "undo"):
            (drained.add if kind == "drain" else drained.discard)(value)
            mark(value)
    while drained:
        mark(drained.pop())
    while running:
        finish(min(running))
    assert not state.queue.jobs
