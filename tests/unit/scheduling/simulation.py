"""A world that carries out what the planner decides: nodes, jobs that run exactly their limit, pools that end."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

from trainshed_service.scheduling import (
    GiveUp,
    JobQueued,
    NodeFree,
    Place,
    PlannerEvent,
    Policy,
    PoolAvailable,
    PoolComing,
    PoolEnded,
    Reclaim,
    State,
    Tick,
    next_wake,
    step,
    step_all,
)


class World:
    """`nodes`: name → types. Every broken rule of the planner is an AssertionError here."""

    def __init__(self, nodes: dict[str, Sequence[str]], policy: Policy, start: float = 0.0) -> None:
        self.types = {name: frozenset(types) for name, types in nodes.items()}
        self.now = start
        self.starts: dict[int, float] = {}
        self.nodes_of: dict[int, tuple[str, ...]] = {}
        self.reclaimed: list[Reclaim] = []
        self.jobs: dict[int, JobQueued] = {}
        self.holders: dict[str, object] = {}
        self.pools: dict[str, PoolAvailable] = {}
        self.keep: dict[int, float] = {}
        """Job → for how long its nodes are kept when it ends."""
        self.emptying = 0.0
        """How long it takes until they are a pool; above 0 it is said that it comes."""
        self._empty: list[tuple[float, PoolAvailable]] = []
        self._ends: list[tuple[float, int, Place]] = []
        self._expiries: list[tuple[float, str]] = []
        self.state = State(policy)
        self.take([NodeFree(name, types) for name, types in self.types.items()])

    def take(self, events: Sequence[PlannerEvent]) -> None:
        for event in events:
            if isinstance(event, JobQueued):
                self.jobs[event.job_id] = event
        if len(events) == 1:
            self.state, decisions = step(self.state, events[0], self.now)
        else:
            self.state, decisions = step_all(self.state, events, self.now)
        for decision in decisions:
            self._carry_out(decision)
        free = {name for name in self.types if name not in self.holders}
        assert free == {name for name, node in self.state.fleet.nodes.items() if node.holding is None}

    def run_until(self, time: float) -> None:
        """Let all that ends until then end."""
        while True:
            wake = next_wake(self.state)
            moments = [each[0][0] if each else None for each in (self._ends, self._expiries, self._empty)] + [wake]
            due = min((moment for moment in moments if moment is not None), default=None)
            if due is None or due > time:
                self.now = max(self.now, time)
                return
            self.now = max(self.now, due)
            if self._ends and self._ends[0][0] <= self.now:
                self._end(heapq.heappop(self._ends)[2])
            elif self._expiries and self._expiries[0][0] <= self.now:
                self._end_pool(heapq.heappop(self._expiries)[1])
            elif self._empty and self._empty[0][0] <= self.now:
                self._open(self._empty.pop(0)[1])
            else:
                self.take([Tick()])
                wake = next_wake(self.state)
                assert wake is None or wake > self.now, "a tick that leads to a tick"

    def _carry_out(self, decision: Any) -> None:
        if isinstance(decision, Place):
            job = decision.job
            assert self.jobs[job.job_id] is job
            assert job.job_id not in self.starts, "placed twice"
            assert len(decision.nodes) == len(set(decision.nodes)) == len(job.members)
            if decision.pool is not None:
                pool = self.pools.pop(decision.pool)
                assert set(pool.node_ids) == set(decision.nodes) and pool.pool_key == job.pool_key
                for name in decision.nodes:
                    assert self.holders.pop(name) == decision.pool
            for name, member in zip(decision.nodes, job.members, strict=True):
                assert name not in self.holders, "a node with two holders"
                assert not self.types[name] or member.instance_type in self.types[name]
                self.holders[name] = job.job_id
            self.starts[job.job_id] = self.now
            self.nodes_of[job.job_id] = decision.nodes
            heapq.heappush(self._ends, (self.now + job.max_runtime_seconds, job.job_id, decision))
        elif isinstance(decision, Reclaim):
            assert decision.cluster_id in self.pools
            self.reclaimed.append(decision)
            heapq.heappush(self._expiries, (self.now, decision.cluster_id))
        elif isinstance(decision, GiveUp):
            del self.jobs[decision.job_id]

    def _end(self, place: Place) -> None:
        job = place.job
        seconds = self.keep.get(job.job_id)
        if seconds is not None and job.pool_key is not None:
            name = f"pool-{job.job_id}"
            pool = PoolAvailable(
                name,
                job.pool_key,
                job.role_arn,
                job.user_id,
                job.members[0].instance_type,
                place.nodes,
                self.now,
                self.now + seconds,
            )
            if self.emptying:
                self._empty.append((self.now + self.emptying, pool))
                fields = (name, job.pool_key, job.role_arn, job.user_id, pool.instance_type, place.nodes)
                self.take([PoolComing(*fields, self.now + 5.0)])
            else:
                self._open(pool)
            return
        for node_id in place.nodes:
            del self.holders[node_id]
        self.take([NodeFree(name, self.types[name]) for name in place.nodes])

    def _open(self, pool: PoolAvailable) -> None:
        self.pools[pool.cluster_id] = pool
        for node_id in pool.node_ids:
            self.holders[node_id] = pool.cluster_id
        heapq.heappush(self._expiries, (pool.until, pool.cluster_id))
        self.take([pool])

    def _end_pool(self, name: str) -> None:
        pool = self.pools.pop(name, None)
        if pool is None:
            return
        for node_id in pool.node_ids:
            del self.holders[node_id]
        self.take([PoolEnded(name), *(NodeFree(node_id, self.types[node_id]) for node_id in pool.node_ids)])
