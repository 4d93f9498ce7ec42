"""Warm pools in the planner: which waiting job takes one, and which pools end so that others can start.

Rules: the pool that expires first is taken first; a job takes a pool before free nodes, and in the queue's order. For
a job at the head that no pool fits and that has waited `reclaim_warm_after_seconds`, pools are ended: the oldest first,
no more than it needs, and only where it can start with them. A pool that such a job could use is given to no job that
comes after it. A pool that is coming is promised to the first job that it matches, which waits for it.
"""

from __future__ import annotations

from collections.abc import Collection

from trainshed_service.scheduling.events import Place, PoolComing, Reclaim
from trainshed_service.scheduling.fleet import Holding
from trainshed_service.scheduling.matching import fit
from trainshed_service.scheduling.queue import Waiting
from trainshed_service.scheduling.state import State


def match_pools(state: State, keys: set[str]) -> tuple[list[Place], set[int]]:
    """Give available pools of these keys to waiting jobs; the components in which a pool is kept for the head."""
    places: list[Place] = []
    kept: set[int] = set()
    for key in sorted(keys):
        while (names := state.pools_by_key.get(key)) and key in state.queue.by_pool_key:
            pools = sorted((state.fleet.pools[name] for name in names), key=lambda pool: (pool.ends_at, str(pool.key)))
            pair = _pair(state, key, pools, kept)
            if pair is None:
                break
            places.append(state.place_on(*pair))
    return places, kept


def takes_pool(state: State, waiting: Waiting) -> Holding | None:
    """The pool that this job would get now."""
    names = state.pools_by_key.get(waiting.job.pool_key or "", ())
    pools = sorted((state.fleet.pools[name] for name in names), key=lambda pool: (pool.ends_at, str(pool.key)))
    return next((pool for pool in pools if _may_take(state, waiting, pool)), None)


def promise(state: State, waiting: Waiting, given: Collection[str] = ()) -> PoolComing | None:
    """The pool that comes in a moment and that the job is to wait for; `given`: those that others wait for."""
    job = waiting.job
    for pool in state.coming.values():
        if (
            pool.pool_key == job.pool_key
            and pool.by > state.now
            and pool.cluster_id not in given
            and len(pool.node_ids) == len(job.members)
            and job.avoid.isdisjoint(pool.node_ids)
        ):
            credit = (pool.user_id, pool.role_arn, pool.instance_type, len(pool.node_ids))
            if state.quotas.broken(job.user_id, job.role_arn, job.needs, credit) is None:
                return pool
    return None


def _pair(state: State, key: str, pools: list[Holding], kept: set[int]) -> tuple[Waiting, Holding] | None:
    for job_id in state.queue.for_pool(key, state.shares, state.warp()):
        waiting = state.queue.jobs[job_id]
        for pool in pools:
            if not _may_take(state, waiting, pool):
                continue
            head = _entitled_head(state, waiting, pool)
            if head is None:
                return waiting, pool
            kept |= {state.fleet.classes[index].component for index in pool.counts}
    return None


def _may_take(state: State, waiting: Waiting, pool: Holding) -> bool:
    job = waiting.job
    if len(pool.types) != len(job.members) or not job.avoid.isdisjoint(pool.types) or pool.ends_at <= state.now:
        return False
    instance_type = job.members[0].instance_type
    credit = (pool.user_id, pool.role_arn, instance_type, len(pool.types))
    return state.quotas.broken(job.user_id, job.role_arn, job.needs, credit) is None


def _entitled_head(state: State, waiting: Waiting, pool: Holding) -> Waiting | None:
    """A job before this one that has waited long enough to have the pool ended for it."""
    after = state.policy.reclaim_warm_after_seconds
    if after is None:
        return None
    warp = state.warp()
    for component in sorted({state.fleet.classes[index].component for index in pool.counts}):
        head = state.queue.jobs.get(state.heads.get(component, -1))
        if head is None or head is waiting or state.now < head.job.queued_at + after:
            continue
        order = state.queue.order
        if order(head.job, state.shares, warp) < order(waiting.job, state.shares, warp) and pool in plan(state, head):
            return head
    return None


def plan(state: State, head: Waiting) -> list[Holding]:
    """The pools to end so that the job can start, oldest first; none where that does not help."""
    fleet = state.fleet
    classes = head.shape.classes(fleet)
    if not classes or state.quotas.broken(head.job.user_id, head.job.role_arn, head.shape.needs):
        return []
    counts = list(fleet.free)
    candidates: list[Holding] = []
    needed = head.shape.total - sum([fleet.free[index] for index in classes])
    pools = fleet.pools_of(classes)
    if needed > sum([sum(pool.counts.values()) for pool in pools]):
        return []
    for pool in pools:
        if pool.kind == "ending":
            for index, count in pool.counts.items():
                counts[index] += count
        elif not classes.isdisjoint(pool.counts):
            candidates.append(pool)
    if fit(head.shape.needs, counts, fleet.accepting) is not None:
        return []  # it only waits for those that are ending
    candidates.sort(key=lambda pool: (pool.since, str(pool.key)))
    chosen: list[Holding] = []
    for pool in candidates:
        chosen.append(pool)
        for index, count in pool.counts.items():
            counts[index] += count
        if fit(head.shape.needs, counts, fleet.accepting) is not None:
            break
    else:
        return []
    for pool in chosen[-2::-1]:  # the last one was needed
        for index, count in pool.counts.items():
            counts[index] -= count
        if fit(head.shape.needs, counts, fleet.accepting) is None:
            for index, count in pool.counts.items():
                counts[index] += count
        else:
            chosen.remove(pool)
    return chosen


def reclaim(state: State, blocked: list[Waiting], promised: Collection[int], scope: set[int]) -> list[Reclaim]:
    """End pools for the first blocked jobs that have waited long enough; note when others will have.

    `promised`: those that wait for a pool that is coming.
    """
    for component in scope:
        state.reclaims.pop(component, None)
    after = state.policy.reclaim_warm_after_seconds
    if after is None or not state.pools_by_key:
        return []
    decisions: list[Reclaim] = []
    claimed: set[int] = set()
    for waiting in blocked:
        classes = waiting.shape.classes(state.fleet)
        if waiting.job.job_id in promised or not claimed.isdisjoint(classes):
            continue
        claimed |= classes
        due = waiting.job.queued_at + after
        if state.now < due:
            for component in waiting.shape.components(state.fleet):
                state.reclaims[component] = min(due, state.reclaims.get(component, due))
            continue
        for pool in plan(state, waiting):
            state.close_pool(pool)
            waited = max(0.0, state.now - waiting.job.queued_at)
            reason = f"job {waiting.job.name} has waited {waited:.0f} s for instances and no pool matches it"
            decisions.append(Reclaim(str(pool.key), waiting.job.job_id, reason))
    return decisions
