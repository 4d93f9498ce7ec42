"""Properties of the planner: whole gangs, no node given twice, every node accounted for, first come first served."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.depth import examples
from trainshed_service.jobs.spec import Member
from trainshed_service.scheduling import (
    JobGone,
    JobQueued,
    NodeFree,
    NodeGone,
    NodeTaken,
    Place,
    State,
    Wait,
    explain,
    restore,
    step,
)

C5, M5, ODD = "ml.c5.xlarge", "ml.m5.large", "ml.own.huge"


def job(number: int, *types: str) -> JobQueued:
    return JobQueued(number, f"job-{number}", tuple(Member(name) for name in types))


def node(name: str, *types: str) -> NodeFree:
    return NodeFree(name, frozenset(types))


def run(*events: object) -> tuple[State, list[object]]:
    state, decisions = State(), []
    for event in events:
        state, more = step(state, event, 0.0)  # type: ignore[arg-type]
        decisions += more
    return state, decisions


def test_a_gang_is_placed_whole_or_waits_with_a_reason() -> None:
    state, decisions = run(node("a"), node("b"), job(1, C5), job(2, C5, C5))
    assert [d.nodes for d in decisions if isinstance(d, Place)] == [("a",)]
    assert state.waits[2] == f"Waiting for capacity: needs 2 × {C5}; 1 free, 1 busy"
    _, more = step(state, node("a"), 0.0)
    assert [d.nodes for d in more if isinstance(d, Place)] == [("a", "b")]


def test_first_come_a_smaller_job_does_not_overtake() -> None:
    state, decisions = run(node("a"), node("b"), job(1, C5), job(2, C5, C5), job(3, C5))
    assert [d.job.job_id for d in decisions if isinstance(d, Place)] == [1]
    assert explain(state, 3) is not None
    assert "1 job ahead" in str(explain(state, 3))


def test_a_job_that_can_never_fit_is_told_and_blocks_nobody() -> None:
    state, decisions = run(node("a"), job(1, C5, C5), job(2, ODD), job(3, C5))
    assert [d.job.job_id for d in decisions if isinstance(d, Place)] == [3]
    assert "waits until 1 more node for ml.c5.xlarge join" in str(explain(state, 1))
    assert "not a known instance type" in str(explain(state, 2))
    state, _ = step(state, node("a"), 0.0)
    _, more = step(state, node("b"), 0.0)
    assert [d.job.job_id for d in more if isinstance(d, Place)] == [1]


def test_types_are_matched_even_where_a_greedy_choice_fails() -> None:
    _, decisions = run(node("x", C5, M5), node("y", C5), job(1, C5, M5))
    assert [d.nodes for d in decisions if isinstance(d, Place)] == [("y", "x")]


def test_a_node_to_avoid_is_taken_last() -> None:
    avoiding = JobQueued(1, "job-1", (Member(C5),), frozenset({"a"}))
    _, decisions = run(node("a"), node("b"), avoiding)
    assert [d.nodes for d in decisions if isinstance(d, Place)] == [("b",)]


def test_a_job_that_is_gone_lets_the_next_one_in() -> None:
    state, _ = run(node("a"), node("b"), job(1, C5), job(2, C5, C5), job(3, C5))
    _, more = step(state, JobGone(2), 0.0)
    assert [d.job.job_id for d in more if isinstance(d, Place)] == [3]


def test_a_retried_job_goes_before_those_that_came_later() -> None:
    state, _ = run(NodeTaken("a", frozenset()), NodeTaken("b", frozenset()), job(2, C5, C5), job(4, C5))
    assert state.head == 2
    state, decisions = step(state, job(1, C5), 0.0)
    assert (state.head, list(state.queue)) == (1, [1, 2, 4])
    assert [d.job_id for d in decisions if isinstance(d, Wait)] == [1]
    _, decisions = step(state, node("a"), 0.0)
    assert [d.job.job_id for d in decisions if isinstance(d, Place)] == [1]


def test_a_new_job_costs_the_same_however_many_wait() -> None:
    """It is put behind the others in the same storage, and the outlook of its kind is computed once."""
    state, _ = run(node("a"), *(job(number, C5, C5) for number in range(1, 1001)))
    outlook = state.outlook(state.queue[1])
    following, decisions = step(state, job(1001, C5, C5), 0.0)
    assert decisions == []
    assert following.queue._ids is state.queue._ids
    assert following.outlook(following.queue[1001]) is outlook
    assert (len(state.queue), len(following.queue)) == (1000, 1001)


TYPES = st.sampled_from([C5, M5, ODD])
EVENTS = st.one_of(
    st.tuples(st.just("job"), st.lists(TYPES, min_size=1, max_size=4)),
    st.tuples(st.just("free"), st.integers(0, 5)),
    st.tuples(st.just("gone"), st.integers(0, 5)),
    st.tuples(st.just("end"), st.integers(0, 20)),
    st.tuples(st.just("stop"), st.integers(1, 20)),
)
NODE_TYPES: list[tuple[str, ...]] = [(), (), (C5,), (M5, C5), (ODD,), ()]


@settings(max_examples=examples(50))
@given(st.lists(EVENTS, max_size=40))
def test_no_two_holders_all_or_nothing_and_conservation(script: list[tuple[str, object]]) -> None:
    state = State()
    holders: dict[str, int] = {}
    present: set[str] = set()
    queued: dict[int, JobQueued] = {}
    number = 0
    for kind, value in script:
        if kind == "job":
            number += 1
            event = job(number, *value)  # type: ignore[misc]
            queued[number] = event
        elif kind == "free":
            name = f"n{value}"
            if name in holders:
                continue  # only a slot that is proven empty becomes free
            present.add(name)
            event = node(name, *NODE_TYPES[value])  # type: ignore[index,assignment]
        elif kind == "gone":
            name = f"n{value}"
            present.discard(name)
            holders.pop(name, None)
            event = NodeGone(name)  # type: ignore[assignment]
        elif kind == "end":
            held = sorted(holders)
            if not held:
                continue
            name = held[value % len(held)]  # type: ignore[operator]
            del holders[name]
            event = node(name, *NODE_TYPES[int(name[1:])])  # type: ignore[assignment]
        else:
            queued.pop(value, None)  # type: ignore[call-overload]
            event = JobGone(value)  # type: ignore[assignment,arg-type]
        before = (dict(state.nodes), dict(state.queue), dict(state.waits))
        following, decisions = step(state, event, 0.0)
        assert before == (state.nodes, state.queue, state.waits), "the given state was changed in place"
        state = following
        for decision in decisions:
            if isinstance(decision, Wait):
                assert decision.job_id in queued
                continue
            assert len(decision.nodes) == len(set(decision.nodes)) == len(decision.job.members)
            for name, member in zip(decision.nodes, decision.job.members, strict=True):
                assert name in present and name not in holders
                types = NODE_TYPES[int(name[1:])]
                assert member.instance_type in types if types else member.instance_type != ODD
                holders[name] = decision.job.job_id
            del queued[decision.job.job_id]
        assert set(state.queue) == set(queued)
        assert set(state.nodes) == present
        assert {name for name, view in state.nodes.items() if not view.free} == set(holders)
        seen = [
            node(n, *v.instance_types) if v.free else NodeTaken(n, v.instance_types) for n, v in state.nodes.items()
        ]
        anew, decisions = restore([*seen, *state.queue.values()], 0.0)
        assert not any(isinstance(decision, Place) for decision in decisions), "a step left what could be placed"
        assert (anew.nodes, anew.queue, anew.head) == (state.nodes, state.queue, state.head)
