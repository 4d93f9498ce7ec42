"""What the planner knows, and the changes of it that keep all indexes in step. Changed in place by the planner alone.

Invariants: `held` instances of a quota, `held` of a user's account and the holdings of the fleet are changed together,
here and nowhere else; a job is in the queue or holds nodes, never both.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field

from trainshed_service.scheduling.events import JobQueued, Place, PoolAvailable, PoolComing, QuotaRule, Running
from trainshed_service.scheduling.fleet import UNKNOWN_SECONDS, Fleet, Holding
from trainshed_service.scheduling.matching import Allocation
from trainshed_service.scheduling.queue import OrderKey, Queue, Shape, Waiting
from trainshed_service.scheduling.quotas import QuotaBook
from trainshed_service.scheduling.shares import Shares


@dataclass(frozen=True)
class Policy:
    """How the planner decides where the rules leave a choice; see the settings of the same names."""

    usage_half_life_seconds: float = 7 * 86_400.0
    reclaim_warm_after_seconds: float | None = 60.0
    backfill: bool = True


class Refusals:
    """What a look at the queue refused though it fitted what was free: whatever is as large and as long, and comes
    later in the order, is refused too, until something changes."""

    __slots__ = ("_found", "head", "last")

    def __init__(self) -> None:
        self._found: dict[str, list[tuple[int, float, int]]] = {}
        self.last: int | None = None
        """The job at which the look ended, though more were waiting."""
        self.head: tuple[int, float, int] | None = None
        """The first job that is blocked (of the only class of nodes), when it can start, and what it leaves then."""

    def add(self, shape: Shape, seconds: float, job_id: int) -> None:
        if len(shape.needs) == 1:
            self._found.setdefault(shape.types[0], []).append((shape.total, seconds, job_id))

    def covers(self, shape: Shape, seconds: float) -> bool:
        """Whether a job that comes after all of them is refused for certain."""
        return self.by(shape, seconds) is not None

    def by(self, shape: Shape, seconds: float) -> int | None:
        """The job whose refusal decides on one like this that comes after it."""
        if len(shape.needs) == 1:
            for total, limit, job_id in self._found.get(shape.types[0], ()):
                if shape.total >= total and seconds >= limit:
                    return job_id
        return None


@dataclass(eq=False)
class State:
    policy: Policy = field(default_factory=Policy)
    fleet: Fleet = field(default_factory=Fleet)
    queue: Queue = field(default_factory=Queue)
    quotas: QuotaBook = field(default_factory=QuotaBook)
    now: float = 0.0
    """The latest time that was told; time does not go back."""
    heads: dict[int, int] = field(default_factory=dict)
    """Component of the nodes → the first job in its order that waits for capacity."""
    reclaims: dict[int, float] = field(default_factory=dict)
    """Component → when its head has waited long enough for pools to be ended."""
    give_ups: list[tuple[float, int]] = field(default_factory=list)
    """A heap; entries of jobs that wait no more are passed over."""
    pools_by_key: dict[str, set[str]] = field(default_factory=dict)
    """The available pools."""
    coming: dict[str, PoolComing] = field(default_factory=dict)
    """Cluster → the pool that it is going to be: few, and each only for a moment."""
    refusals: dict[int, Refusals] = field(default_factory=dict)
    """Component → what the last look at it refused."""
    fruitless: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Component → the head and how much was free when a whole look placed nothing."""
    shares: Shares = field(init=False)

    def __post_init__(self) -> None:
        self.shares = Shares(self.policy.usage_half_life_seconds)
        self._warp = (float("nan"), 0.0)

    @property
    def waits(self) -> dict[int, str]:
        """The reasons last given by `Wait`."""
        return {job_id: found.told for job_id, found in self.queue.jobs.items() if found.told is not None}

    def warp(self) -> float:
        if self._warp[0] != self.now:
            self._warp = (self.now, self.shares.warp(self.now))
        return self._warp[1]

    def rebase(self) -> None:
        """Keep the numbers of the shares small."""
        factor = self.shares.rebase(self.now)
        if factor is not None:
            self._warp = (self.now, self.shares.warp(self.now))
            for level in self.queue.levels():
                level.rescale(factor)

    def replace_quotas(self, rules: tuple[QuotaRule, ...]) -> None:
        self.quotas.replace(rules)
        for holding in (*self.fleet.jobs.values(), *self.fleet.pools.values()):
            for name in holding.types.values():
                self.quotas.take(holding.user_id, holding.role_arn, name, 1)

    def order_of(self, job: JobQueued) -> OrderKey:
        return self.queue.order(job, self.shares, self.warp())

    # -- jobs ------------------------------------------------------------------------------------------------------

    def enqueue(self, job: JobQueued) -> bool:
        """Whether nothing like it waits before it."""
        first = self.queue.add(job, self.shares, self.warp())
        if job.give_up_at is not None:
            heapq.heappush(self.give_ups, (job.give_up_at, job.job_id))
        return first

    def dequeue(self, job_id: int) -> Waiting:
        return self.queue.remove(job_id)

    def place(self, waiting: Waiting, allocation: Allocation) -> Place:
        """Give free nodes to the job."""
        job = waiting.job
        chosen = self.fleet.choose(allocation, job.avoid, to_hold=True)
        nodes = order_nodes(job, chosen)
        self._start(job, nodes)
        return Place(job, nodes)

    def place_on(self, waiting: Waiting, pool: Holding) -> Place:
        """Give a pool to the job."""
        nodes = tuple(pool.types)
        self.close_pool(pool)
        self._dissolve(pool)
        self._start(waiting.job, nodes)
        return Place(waiting.job, nodes, str(pool.key))

    def run(self, event: Running) -> set[int]:
        """Note what runs; the components whose nodes were concerned."""
        known = self.fleet.jobs.get(event.job_id)
        types = {
            node_id: member.instance_type
            for node_id, member in zip(event.node_ids, event.members, strict=True)
            if self._may_be_held(node_id)
        }
        if known is not None:
            known.expected_end = event.expected_end
            self.fleet.change_end(known, event.ends_at)
            more = {node_id: name for node_id, name in types.items() if node_id not in known.types}
            if more:  # those of an agent that was heard from later
                self._charge(known, more, known.since)
                self.fleet.extend(known, more)
            return {self.fleet.classes[index].component for index in known.counts}
        holding = Holding(
            "job",
            event.job_id,
            event.user_id,
            event.role_arn,
            types,
            event.started_at,
            event.ends_at,
            event.expected_end,
        )
        if types:
            self._hold(holding, since=event.started_at)
            self.fleet.jobs[event.job_id] = holding
        return {self.fleet.classes[index].component for index in holding.counts}

    def _start(self, job: JobQueued, nodes: tuple[str, ...]) -> None:
        self.dequeue(job.job_id)
        if len(job.needs) == 1:
            types = dict.fromkeys(nodes, job.needs[0][0])
        else:
            types = {node_id: member.instance_type for node_id, member in zip(nodes, job.members, strict=True)}
        expected = self.now + job.expected_seconds if job.expected_seconds is not None else None
        holding = Holding(
            "job",
            job.job_id,
            job.user_id,
            job.role_arn,
            types,
            self.now,
            self.now + job.max_runtime_seconds,
            expected,
        )
        self._hold(holding)
        self.fleet.jobs[job.job_id] = holding

    # -- pools -----------------------------------------------------------------------------------------------------

    def open_pool(self, event: PoolAvailable) -> set[int]:
        """The nodes of a job that ended are a pool (or its `until` is another); the components concerned."""
        known = self.fleet.pools.get(event.cluster_id)
        if known is not None:
            self.fleet.change_end(known, event.until)
            return set()
        types: dict[str, str] = {}
        for node_id in event.node_ids:
            if self._may_be_held(node_id):
                self.release(node_id)
                types[node_id] = event.instance_type
        if len(types) != len(event.node_ids):
            return {self.fleet.nodes[node_id].cls.component for node_id in types}  # it can't be whole: about to end
        pool = Holding(
            "pool",
            event.cluster_id,
            event.user_id,
            event.role_arn,
            types,
            event.since,
            event.until,
            pool_key=event.pool_key,
        )
        self._hold(pool, since=event.since)
        self.fleet.pools[event.cluster_id] = pool
        self.pools_by_key.setdefault(event.pool_key, set()).add(event.cluster_id)
        return {self.fleet.classes[index].component for index in pool.counts}

    def close_pool(self, pool: Holding) -> None:
        """No job may take it any more."""
        self._forget_pool(pool)
        pool.kind = "ending"
        self.fleet.change_end(pool, self.now)

    def _forget_pool(self, pool: Holding) -> None:
        same = self.pools_by_key.get(pool.pool_key)
        if same is not None and pool.key in same:
            same.discard(str(pool.key))
            if not same:
                del self.pools_by_key[pool.pool_key]

    # -- nodes -----------------------------------------------------------------------------------------------------

    def take_unknown(self, node_id: str) -> None:
        """A free node is held by something that we were not told of."""
        self.fleet.hold(Holding("unknown", node_id, None, "", {node_id: ""}, self.now, self.now + UNKNOWN_SECONDS))

    def release(self, node_id: str) -> Holding | None:
        """The node is free; who held it (and may hold others still)."""
        node = self.fleet.nodes[node_id]
        holding = node.holding
        if holding is None:
            return None
        instance_type = holding.types[node_id]
        self.fleet.drop(node_id, node)
        if holding.kind != "unknown":
            if self.quotas.rules:
                self.quotas.take(holding.user_id, holding.role_arn, instance_type, -1)
            self.shares.give(holding.user_id, 1, self.warp())
            if holding.kind == "pool":
                self.close_pool(holding)  # a pool that lacks a node serves nobody
            if not holding.types:
                self._end(holding)
        return holding

    def _may_be_held(self, node_id: str) -> bool:
        """The node is there, and free or held by nobody we know (or by the very job whose pool it becomes)."""
        return node_id in self.fleet.nodes

    def _hold(self, holding: Holding, since: float | None = None) -> None:
        self._charge(holding, holding.types, since)
        self.fleet.hold(holding)

    def _charge(self, holding: Holding, types: dict[str, str], since: float | None) -> None:
        """Nodes are about to be held: nobody else holds them from now on, and they count for the user and the role."""
        nodes = self.fleet.nodes
        for node_id in types:
            if nodes[node_id].holding is not None:
                self.release(node_id)
        if self.quotas.rules:
            for name, count in Counter(types.values()).items():
                self.quotas.take(holding.user_id, holding.role_arn, name, count)
        self.shares.take(holding.user_id, len(types), self.now, since=since)

    def _dissolve(self, holding: Holding) -> None:
        for node_id in list(holding.types):
            self.release(node_id)

    def _end(self, holding: Holding) -> None:
        if holding.kind == "job":
            assert isinstance(holding.key, int)
            if self.fleet.jobs.get(holding.key) is holding:  # else the job was tried again meanwhile
                del self.fleet.jobs[holding.key]
        else:
            self._forget_pool(holding)
            self.fleet.pools.pop(str(holding.key), None)


def order_nodes(job: JobQueued, chosen: dict[str, list[str]]) -> tuple[str, ...]:
    """Nodes by type in rank order."""
    if len(chosen) == 1:
        (nodes,) = chosen.values()
        return tuple(nodes)
    left = {name: iter(nodes) for name, nodes in chosen.items()}
    return tuple(next(left[member.instance_type]) for member in job.members)
