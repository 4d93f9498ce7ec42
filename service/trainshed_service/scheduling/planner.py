"""The planner: `step(state, event, now) -> (state, decisions)`, a function of its arguments and of nothing else.

For speed the state is changed in place and returned; whoever needs an older one restores it. Same events, same times,
same decisions: nothing here reads a clock, a random number or anything outside.

Invariants:

* A job gets all of its instances in one decision or none; no node and no pool is given twice.
* Order: priority, then the user's decayed usage, then age. A job overtakes only where it delays nobody (`walk`); one
  that a quota or the lack of nodes keeps back holds back nobody.
* A decision is already part of the returned state: the applier either carries it out or rebuilds the state.
* An event costs the same however many jobs wait: a new job behind another like it is only put into its place, and a
  look at the queue ends after a fixed number of jobs.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from trainshed_service.scheduling.events import (
    WITHDRAWN,
    Decision,
    GiveUp,
    JobGone,
    JobQueued,
    NodeFree,
    NodeGone,
    NodeTaken,
    PlannerEvent,
    PoolAvailable,
    PoolComing,
    PoolEnded,
    Quotas,
    Running,
    Tick,
    Usage,
    Wait,
)
from trainshed_service.scheduling.fleet import Holding
from trainshed_service.scheduling.pooling import match_pools, reclaim
from trainshed_service.scheduling.queue import Waiting
from trainshed_service.scheduling.state import Policy, State
from trainshed_service.scheduling.walk import Walk
from trainshed_service.scheduling.words import reason

CAPACITY_ERROR = (
    "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different ML instance type."
)
_TELL_AGAIN_SECONDS = 5.0


class _Changes:
    """What the events of a step touched: components of the nodes, and pool keys."""

    __slots__ = ("components", "everything", "keys")

    def __init__(self) -> None:
        self.components: set[int] = set()
        self.keys: set[str] = set()
        self.everything = False


def step(state: State, event: PlannerEvent, now: float) -> tuple[State, list[Decision]]:
    """Take in one event and decide. `state` is changed in place and returned."""
    return step_all(state, (event,), now)


def step_all(state: State, events: Iterable[PlannerEvent], now: float) -> tuple[State, list[Decision]]:
    """Take in events that came together, then decide once."""
    state.now = max(state.now, now)
    state.rebase()
    changes = _Changes()
    for late in [pool.cluster_id for pool in state.coming.values() if pool.by <= state.now]:
        _arrived(state, late, changes)
    for event in events:
        _take(state, event, changes)
    decisions = _give_up(state, changes)
    decisions += _decide(state, changes)
    return state, decisions


def restore(events: Iterable[PlannerEvent], now: float, policy: Policy | None = None) -> tuple[State, list[Decision]]:
    """The state that these events make (nodes, quotas, usage, what runs, pools, the queue), and what to do in it."""
    return step_all(State(policy or Policy()), events, now)


def next_wake(state: State) -> float | None:
    """When a `Tick` is needed at the latest, if nothing else happens; None: never."""
    while state.give_ups and state.give_ups[0][1] not in state.queue:
        heapq.heappop(state.give_ups)
    times = [
        *state.reclaims.values(),
        *(entry[0] for entry in state.give_ups[:1]),
        *(pool.by for pool in state.coming.values()),
    ]
    return min(times, default=None)


def _take(state: State, event: PlannerEvent, changes: _Changes) -> None:
    match event:
        case JobQueued():
            _queue(state, event, changes)
        case JobGone():
            if event.job_id in state.queue:
                _leave(state, event.job_id, changes)
        case NodeFree():
            before = state.fleet.nodes.get(event.node_id)
            if before is not None:
                changes.components.add(before.cls.component)
            node = state.fleet.put(event.node_id, event.instance_types)
            if node.holding is not None:
                _freed(state, state.release(event.node_id), node.cls.types, changes)
            changes.components.add(node.cls.component)
        case NodeTaken():
            before = state.fleet.nodes.get(event.node_id)
            if before is not None and before.cls.types != event.instance_types:
                changes.components.add(before.cls.component)
            node = state.fleet.put(event.node_id, event.instance_types)
            if node.holding is None:
                state.take_unknown(event.node_id)
        case NodeGone():
            if event.node_id in state.fleet.nodes:
                gone = state.fleet.nodes[event.node_id].cls
                changes.components.add(gone.component)
                _freed(state, state.release(event.node_id), gone.types, changes)
                state.fleet.remove(event.node_id)
        case Running():
            if event.job_id in state.queue:
                _leave(state, event.job_id, changes)
            changes.components |= state.run(event)
        case PoolComing():
            state.coming[event.cluster_id] = event
        case PoolAvailable():
            _arrived(state, event.cluster_id, changes)
            changes.components |= state.open_pool(event)
            changes.keys.add(event.pool_key)
        case PoolEnded():
            _arrived(state, event.cluster_id, changes)
            pool = state.fleet.pools.get(event.cluster_id)
            if pool is not None:
                changes.components |= {state.fleet.classes[index].component for index in pool.counts}
                state.close_pool(pool)
        case Quotas():
            state.replace_quotas(event.rules)
            changes.everything = True
        case Usage():
            state.shares.restore(event.user_id, event.instance_seconds, event.at)
        case Tick():
            due = {component for component, at in state.reclaims.items() if at <= state.now}
            for component in due:
                del state.reclaims[component]
            changes.components |= due


def _queue(state: State, job: JobQueued, changes: _Changes) -> None:
    """One behind another like it, or that does not fit what is free, changes nothing for anybody."""
    if job.job_id in state.queue:
        return
    first = state.enqueue(job)
    if job.pool_key in state.pools_by_key:
        assert job.pool_key is not None
        changes.keys.add(job.pool_key)
    is_expected = bool(state.coming) and any(pool.pool_key == job.pool_key for pool in state.coming.values())
    if not first and not is_expected:
        return
    waiting = state.queue.jobs[job.job_id]
    components = waiting.shape.components(state.fleet)
    if waiting.shape.fits(state.fleet) is not None:
        if not _is_refused(state, waiting, components):
            changes.components |= components
        return
    # It may be the new head, which is told why it waits; nothing can start by that.
    for component in components:
        head = state.queue.jobs.get(state.heads.get(component, -1))
        if head is None or _is_before(state, job, head.job):
            changes.components.add(component)


def _arrived(state: State, cluster_id: str, changes: _Changes) -> None:
    """A pool that was coming is there, or does not come: nobody waits for it any more."""
    pool = state.coming.pop(cluster_id, None)
    if pool is not None:
        changes.components |= state.fleet.components((pool.instance_type,))


def _is_refused(state: State, waiting: Waiting, components: frozenset[int]) -> bool:
    """Whether the last look at the nodes that the job could use says that it has to wait."""
    if len(components) != 1:
        return False
    (component,) = components
    refusals = state.refusals.get(component)
    if refusals is None:
        return False
    job, shape = waiting.job, waiting.shape
    if refusals.head is not None and len(shape.needs) == 1:
        head_id, start, left = refusals.head
        head = state.queue.jobs.get(head_id)
        if head is not None and shape.total > left and state.now + job.max_runtime_seconds > start:
            return _is_before(state, head.job, job)
    for job_id in (refusals.by(waiting.shape, job.max_runtime_seconds), refusals.last):
        before = state.queue.jobs.get(job_id) if job_id is not None else None
        if before is not None and _is_before(state, before.job, job):
            return True
    return False


def _is_before(state: State, one: JobQueued, other: JobQueued) -> bool:
    return state.order_of(one) < state.order_of(other)


def _leave(state: State, job_id: int, changes: _Changes) -> None:
    """A job that waited before others no longer does: they may start."""
    waiting = state.dequeue(job_id)
    components = waiting.shape.components(state.fleet)
    changes.components |= components


def _freed(state: State, holding: Holding | None, types: frozenset[str], changes: _Changes) -> None:
    """`types`: of the node. A withdrawn one frees a quota for jobs that could never use the node itself."""
    if holding is None:
        return
    if state.quotas.rules and holding.kind != "unknown":
        changes.keys |= state.pools_by_key.keys()
        if types == WITHDRAWN or state.quotas.has_wide_rule(holding.user_id, holding.role_arn):
            changes.everything = True


def _give_up(state: State, changes: _Changes) -> list[Decision]:
    decisions: list[Decision] = []
    while state.give_ups and state.give_ups[0][0] <= state.now:
        _, job_id = heapq.heappop(state.give_ups)
        waiting = state.queue.jobs.get(job_id)
        if waiting is None or waiting.job.give_up_at is None or waiting.job.give_up_at > state.now:
            continue
        if state.quotas.broken(waiting.job.user_id, waiting.job.role_arn, waiting.shape.needs):
            # Only the time for which it waits for capacity counts: look again later.
            heapq.heappush(state.give_ups, (state.now + 60.0, job_id))
            continue
        _leave(state, job_id, changes)
        decisions.append(GiveUp(job_id, waiting.job.name, CAPACITY_ERROR))
    return decisions


def _decide(state: State, changes: _Changes) -> list[Decision]:
    decisions: list[Decision] = []
    if changes.everything:
        changes.components |= {cls.component for cls in state.fleet.classes}
        changes.keys |= state.pools_by_key.keys()
    if changes.keys:
        places, kept = match_pools(state, changes.keys)
        decisions += places
        changes.components |= kept
        if places and state.quotas.rules:
            changes.components |= {cls.component for cls in state.fleet.classes}
        elif places:
            changes.components |= {
                state.fleet.nodes[node_id].cls.component for place in places for node_id in place.nodes[:1]
            }
    if changes.components:
        classes = state.fleet.classes
        for component in sorted({classes[component].component for component in changes.components}):
            _look(state, component, decisions)
    return decisions


def _look(state: State, component: int, decisions: list[Decision]) -> None:
    """Place what can be placed on these nodes."""
    scope, done = {component}, False
    while not done:
        walk = Walk(state, scope)
        done = walk.run()
        decisions += walk.look.places
    for each in scope:
        state.refusals[each] = walk.refusals
    if walk.was_thorough and walk.look.blocked and not walk.look.places:
        state.fruitless[component] = (walk.look.blocked[0].job.job_id, state.fleet.free_in(component))
    elif walk.look.places:
        state.fruitless.pop(component, None)
    _note_heads(state, walk, scope, decisions)


def _note_heads(state: State, walk: Walk, scope: set[int], decisions: list[Decision]) -> None:
    heads: dict[int, int] = {}
    for waiting in walk.look.blocked:
        for component in waiting.shape.components(state.fleet):
            heads.setdefault(component, waiting.job.job_id)
    for component in scope:
        head = heads.get(component)
        if head is None:
            state.heads.pop(component, None)
            continue
        state.heads[component] = head
    decisions += reclaim(state, walk.look.blocked, walk.look.promised, scope)
    for job_id in dict.fromkeys(heads[component] for component in sorted(scope) if component in heads):
        waiting = state.queue.jobs[job_id]
        if waiting.told is not None and state.now < waiting.told_at + _TELL_AGAIN_SECONDS:
            continue
        words = reason(state, waiting)
        if words != waiting.told:
            waiting.told, waiting.told_at = words, state.now
            decisions.append(Wait(job_id, words))
