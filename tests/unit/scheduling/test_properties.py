"""What the planner keeps whatever comes: gangs whole, nothing given twice, order, quotas, no delay, no lost job."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.depth import examples
from tests.unit.scheduling.simulation import World
from tests.unit.scheduling.world import C5, M5, job, placed
from trainshed_service.scheduling import (
    JobGone,
    NodeFree,
    NodeGone,
    NodeTaken,
    PlannerEvent,
    Policy,
    QuotaRule,
    Quotas,
    Running,
    State,
    restore,
    step,
)

P3 = "ml.p3.2xlarge"
DISJOINT = {
    **{f"c{number}": (C5,) for number in range(6)},
    **{f"m{number}": (M5,) for number in range(4)},
    **{f"p{number}": (P3,) for number in range(2)},
}
SIZES = {C5: 6, M5: 4, P3: 2}

JOBS = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from([C5, M5, P3]), st.integers(1, 6), min_size=1, max_size=2),
        st.integers(1, 50),  # how long it runs
        st.integers(0, 20),  # how long after the one before it came
    ),
    min_size=1,
    max_size=40,
)


def _members(wanted: dict[str, int]) -> list[str]:
    return [name for name, count in wanted.items() for _ in range(min(count, SIZES[name]))]


def _simulate(
    jobs: list[tuple[dict[str, int], int, int]], *, backfill: bool, nodes: dict[str, Any]
) -> dict[int, float]:
    world = World(nodes, Policy(backfill=backfill))
    time = 0.0
    for number, (wanted, seconds, after) in enumerate(jobs, start=1):
        time += after
        world.run_until(time)
        world.take([job(number, *_members(wanted), seconds=float(seconds))])
    world.run_until(1e9)
    assert len(world.starts) == len(jobs), "a job was forgotten"
    return world.starts


@settings(max_examples=examples(100), deadline=None)
@given(JOBS)
def test_overtaking_makes_no_job_start_later(jobs: list[tuple[dict[str, int], int, int]]) -> None:
    strict = _simulate(jobs, backfill=False, nodes=DISJOINT)
    filled = _simulate(jobs, backfill=True, nodes=DISJOINT)
    late = {number: (strict[number], start) for number, start in filled.items() if start > strict[number]}
    assert not late


def test_overtaking_makes_no_job_start_later_behind_a_long_queue() -> None:
    """More jobs are blocked than have nodes set aside exactly."""
    for seed in range(examples(3)):
        chance = random.Random(seed)
        jobs = [
            ({chance.choice([C5, M5]): chance.choice([1, 1, 2, 4, 6])}, chance.choice([1, 2, 5, 30, 200]), 0)
            for _ in range(150)
        ]
        strict = _simulate(jobs, backfill=False, nodes=DISJOINT)
        filled = _simulate(jobs, backfill=True, nodes=DISJOINT)
        assert not {number for number, start in filled.items() if start > strict[number]}
        assert sum(filled.values()) < sum(strict.values()), "nothing overtook"


@settings(max_examples=examples(60), deadline=None)
@given(JOBS, st.integers(1, 4))
def test_equal_jobs_start_in_the_order_in_which_they_came(
    jobs: list[tuple[dict[str, int], int, int]], size: int
) -> None:
    same = [({C5: size}, 10, after) for _, _, after in jobs]
    starts = _simulate(same, backfill=True, nodes={f"n{number}": () for number in range(6)})
    order = [starts[number] for number in sorted(starts)]
    assert order == sorted(order)


EVENTS = st.lists(
    st.one_of(
        st.tuples(
            st.just("job"),
            st.tuples(
                st.lists(st.sampled_from([C5, M5]), min_size=1, max_size=3),
                st.integers(1, 3),  # user
                st.sampled_from([5.0, 60.0, 3600.0]),
                st.sampled_from([-1, 0, 0, 1]),
            ),
        ),
        st.tuples(st.just("pass"), st.integers(1, 100)),
        st.tuples(st.just("stop"), st.integers(1, 20)),
        st.tuples(st.just("quota"), st.integers(1, 6)),
    ),
    max_size=40,
)
MIXED = {"a": (), "b": (), "c": (C5,), "d": (C5, M5), "e": (M5,)}


@settings(max_examples=examples(80), deadline=None)
@given(EVENTS, st.sampled_from([0.0, 1.0, 8.0]))
def test_nothing_is_given_twice_quotas_hold_and_pools_serve_one_job(
    script: list[tuple[str, Any]], emptying: float
) -> None:
    world = World(MIXED, Policy(reclaim_warm_after_seconds=30.0))
    world.emptying = emptying
    limit = 6
    number = 0
    stopped: set[int] = set()
    for kind, value in script:
        if kind == "job":
            types, user, seconds, priority = value
            number += 1
            same = len(set(types)) == 1
            world.keep[number] = 50.0
            world.take(
                [
                    job(
                        number,
                        *types,
                        user=user,
                        seconds=seconds,
                        priority=priority,
                        queued_at=world.now,
                        pool_key=f"{types[0]}×{len(types)}" if same else None,
                    )
                ]
            )
        elif kind == "pass":
            world.run_until(world.now + value)
        elif kind == "stop":
            if value in world.jobs and value not in world.starts:
                stopped.add(value)
                world.take([JobGone(value)])
        else:
            limit = value
            world.take([Quotas((QuotaRule("user", "1", "*", limit, "ann"),))])
        held = Counter(world.jobs[holder].user_id for holder in world.holders.values() if isinstance(holder, int))
        for pool in world.pools.values():
            held[pool.user_id] += len(pool.node_ids)
        for rule in world.state.quotas.rules:
            assert world.state.quotas.held(rule) == held[1]
        for user in (1, 2, 3):
            assert world.state.shares.account(user).held == held[user]
    world.take([Quotas(())])
    world.run_until(1e9)
    never = {number for number, waiting in world.state.queue.jobs.items() if not waiting.shape.ever(world.state.fleet)}
    assert set(world.jobs) - stopped - never == set(world.starts) - stopped
    assert set(world.state.queue.jobs) == never
    assert not world.state.fleet.jobs and not world.state.fleet.pools and not world.state.coming


@settings(max_examples=examples(60), deadline=None)
@given(EVENTS)
def test_a_soft_quota_is_never_exceeded(script: list[tuple[str, Any]]) -> None:
    world = World(MIXED, Policy())
    rules = (QuotaRule("user", "1", "*", 2, "ann"), QuotaRule("all", "*", C5, 3), QuotaRule("user", "2", M5, 1, "bob"))
    world.take([Quotas(rules)])
    number = 0
    for kind, value in script:
        if kind == "job":
            types, user, seconds, priority = value
            number += 1
            world.keep[number] = 20.0
            key = types[0] if len(set(types)) == 1 else None
            world.take([job(number, *types, user=user, seconds=seconds, priority=priority, pool_key=key)])
        elif kind == "pass":
            world.run_until(world.now + value)
        for rule in rules:
            assert world.state.quotas.held(rule) <= rule.instances


@settings(max_examples=examples(60), deadline=None)
@given(EVENTS)
def test_a_restored_state_is_the_one_that_the_steps_led_to(script: list[tuple[str, Any]]) -> None:
    """Nothing is left that could be placed, and whatever comes next leads to the same decisions."""
    world = World(MIXED, Policy())
    number = 0
    for kind, value in script:
        if kind == "job":
            types, _, seconds, priority = value
            number += 1
            world.take([job(number, *types, seconds=seconds, priority=priority)])
        elif kind == "pass":
            world.run_until(world.now + value)
        elif kind == "stop" and value in world.jobs and value not in world.starts:
            world.take([JobGone(value)])
    events: list[PlannerEvent] = []
    fleet = world.state.fleet
    for name, held in fleet.nodes.items():
        events.append((NodeFree if held.holding is None else NodeTaken)(name, held.cls.types))
    for holding in fleet.jobs.values():
        members = world.jobs[int(holding.key)].members
        nodes = [name for name in world.holders if world.holders[name] == holding.key]
        events.append(
            Running(int(holding.key), None, "", tuple(nodes), members, holding.since, holding.ends_at)
            if len(set(members)) == 1
            else _running(world, int(holding.key))
        )
    events += [waiting.job for waiting in world.state.queue.jobs.values()]
    anew, decisions = restore(events, world.now)
    assert not placed(decisions), "a step left what could be placed"
    assert _shown(anew) == _shown(world.state)
    first, one = step(anew, NodeFree("new", frozenset()), world.now + 1)
    second, other = step(world.state, NodeFree("new", frozenset()), world.now + 1)
    assert placed(one) == placed(other)
    assert _shown(first) == _shown(second)


def _running(world: World, number: int) -> Running:
    holding = world.state.fleet.jobs[number]
    members = world.jobs[number].members
    left = dict(holding.types)
    nodes = []
    for member in members:
        name = next(name for name, kind in left.items() if kind == member.instance_type)
        del left[name]
        nodes.append(name)
    return Running(number, None, "", tuple(nodes), members, holding.since, holding.ends_at)


def _shown(state: State) -> Any:
    fleet = state.fleet
    return (
        {name: (node.cls.types, node.holding and node.holding.key) for name, node in fleet.nodes.items()},
        {key: (dict(held.types), held.ends_at) for key, held in fleet.jobs.items()},
        set(state.queue.jobs),
        {cls.types: [(end, held.key) for end, _, held in sorted(cls.ends, key=lambda e: (e[0], str(e[2].key)))]
         for cls in fleet.classes},
    )  # fmt: skip


def test_two_users_with_equal_demand_get_equal_shares() -> None:
    """One queues everything first, with jobs four times as large: after a while both have used the same."""
    world = World({f"n{number}": () for number in range(8)}, Policy(usage_half_life_seconds=1e5))
    number = 0
    for user, size in ((1, 4), (2, 1)):
        for _ in range(1200 // size):
            number += 1
            world.take([job(number, *[C5] * size, user=user, seconds=20.0)])
    used: Counter[int | None] = Counter()
    world.run_until(1500.0)
    for key, start in world.starts.items():
        used[world.jobs[key].user_id] += len(world.jobs[key].members) * min(20.0, 1500.0 - start)
    assert 0.9 < used[1] / used[2] < 1.1
    assert sum(used.values()) > 0.95 * 8 * 1500.0


def test_jobs_that_need_several_kinds_of_nodes_never_wait_for_each_other() -> None:
    """The order of users changes all the time: whoever is first by then starts, and nobody is left over."""
    for seed in range(examples(6)):
        chance = random.Random(seed)
        world = World(DISJOINT, Policy(usage_half_life_seconds=50.0))
        for number in range(1, 121):
            first, second = chance.sample([C5, M5, P3], 2)
            wanted = {first: chance.randint(1, SIZES[first])}
            if chance.random() < 0.5:
                wanted[second] = chance.randint(1, SIZES[second])
            user, seconds = chance.randint(1, 4), chance.choice([3.0, 10.0, 40.0])
            world.take([job(number, *_members(wanted), user=user, seconds=seconds)])
            world.run_until(world.now + chance.random())
        world.run_until(1e9)
        assert len(world.starts) == 120 and not world.state.queue.jobs


def test_a_node_that_goes_takes_nothing_with_it() -> None:
    world = World({"a": (), "b": ()}, Policy())
    world.take([job(1, C5, C5, user=1, seconds=50.0)])
    state, _ = step(world.state, NodeGone("a"), 1.0)
    assert state.fleet.present() == [1]
    assert state.shares.account(1).held == 1
    state, _ = step(state, NodeFree("b", frozenset()), 2.0)
    assert (state.fleet.jobs, state.fleet.free, state.shares.account(1).held) == ({}, [1], 0)
