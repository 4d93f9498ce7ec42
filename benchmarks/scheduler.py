"""The planner on a large installation, on one core: placements per second, time of a step, memory, growth of the cost.

    python -m benchmarks.scheduler [--json FILE] [--nodes 10000] [--jobs 1000 10000 100000] [--rounds 3]

The world: nodes of five types in equal parts; jobs of 1 to 64 instances (most of them small), some of two types at
once, of 200 users, with five limits; 200 warm pools. First the queue fills while all nodes are busy. Then, for as long
as is measured, jobs end at random in proportion to their time, and for each placement a new job comes: the queue stays
as long as it is. The nodes of a job that ended come back together, as the applier takes together what came
meanwhile (`--one-by-one`: each is a step of its own); a job that is kept becomes a pool. The time is the processor's,
of the steps and of nothing else: of each one in a first pass; of all together, which is what the rate is from, in a
second pass that repeats the steps of the first, since looking at the clock takes as long as many a step.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import json
import random
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainshed_service.jobs.spec import Member
from trainshed_service.scheduling import (
    Decision,
    JobQueued,
    NodeFree,
    Place,
    PlannerEvent,
    PoolAvailable,
    PoolEnded,
    Reclaim,
    State,
    step_all,
)

TYPES = ("ml.c5.xlarge", "ml.m5.large", "ml.g5.2xlarge", "ml.p4d.24xlarge", "ml.r5.4xlarge")
SIZES = (1, 1, 1, 1, 1, 1, 2, 2, 2, 4, 4, 8, 8, 16, 32, 64)
LIMITS = (600.0, 3600.0, 14_400.0, 86_400.0, 259_200.0)
USERS = 200
POOLS = 200
KEPT_SECONDS = 600.0


class Bench:
    def __init__(self, nodes: int, jobs: int, seed: int, together: bool = True) -> None:
        self.jobs = jobs
        self.together = together
        self.chance = random.Random(seed)
        self.types = {f"n{number:05}": frozenset({TYPES[number % len(TYPES)]}) for number in range(nodes)}
        self.now = 1_800_000_000.0
        self.state = State()
        self.ends: list[tuple[float, int, Place]] = []
        self.expiries: list[tuple[float, str]] = []
        self.pools: dict[str, PoolAvailable] = {}
        self.number = 0
        self.placed = 0
        self.reused = 0
        self.steps: list[float] = []
        self.script: list[tuple[Sequence[PlannerEvent], float]] | None = None
        """What was taken and when, where it is kept."""
        self._members: dict[tuple[str, int], tuple[Member, ...]] = {}
        for name, kinds in self.types.items():
            self.take(NodeFree(name, kinds))
        while sum(self.state.fleet.free):
            self.take(self.job())
        while len(self.state.queue) < jobs:
            self.take(self.job())
        self.steps.clear()
        self.placed = 0

    def members(self, name: str, count: int) -> tuple[Member, ...]:
        found = self._members.get((name, count))
        if found is None:
            found = self._members[name, count] = (Member(name),) * count
        return found

    def job(self) -> JobQueued:
        chance = self.chance
        self.number += 1
        user = min(int(chance.expovariate(1 / 40)), USERS - 1)
        kind, size = chance.choice(TYPES), chance.choice(SIZES)
        role = f"arn:aws:iam::000000000000:role/team-{user % 20}"
        if chance.random() < 0.05:
            other = chance.choice(TYPES)
            members = self.members(kind, min(size, 8)) + self.members(other, chance.choice((1, 2)))
            key = None
        else:
            members = self.members(kind, size)
            key = f"{role} {kind} {size}"
        return JobQueued(
            self.number,
            f"job-{self.number}",
            members,
            user_id=user,
            role_arn=role,
            priority=chance.choice((0, 0, 0, 0, 0, 0, 0, -10, 10)),
            queued_at=self.now,
            max_runtime_seconds=chance.choice(LIMITS),
            pool_key=key,
            keep_alive=key is not None and chance.random() < 0.1,
        )

    def take(self, *events: PlannerEvent) -> None:
        if self.script is not None:
            self.script.append((events, self.now))
        begin = time.process_time()
        self.state, decisions = step_all(self.state, events, self.now)
        self.steps.append(time.process_time() - begin)
        for decision in decisions:
            self.carry_out(decision)

    def carry_out(self, decision: Decision) -> None:
        if isinstance(decision, Place):
            self.placed += 1
            if decision.pool is not None:
                self.reused += 1
                del self.pools[decision.pool]
            seconds = decision.job.max_runtime_seconds * self.chance.uniform(0.05, 0.9)
            heapq.heappush(self.ends, (self.now + seconds, decision.job.job_id, decision))
        elif isinstance(decision, Reclaim):
            heapq.heappush(self.expiries, (self.now, decision.cluster_id))

    def go_on(self) -> None:
        """What ends next ends; jobs come until as many wait as before."""
        if self.expiries and (not self.ends or self.expiries[0][0] <= self.ends[0][0]):
            self.end_pool(heapq.heappop(self.expiries))
        else:
            self.end_job(heapq.heappop(self.ends))
        while len(self.state.queue) < self.jobs:
            self.take(self.job())

    def end_job(self, end: tuple[float, int, Place]) -> None:
        self.now, _, place = max(end[0], self.now), end[1], end[2]
        job = place.job
        if job.keep_alive and job.pool_key is not None and len(self.pools) < POOLS:
            pool = PoolAvailable(
                f"pool-{job.job_id}",
                job.pool_key,
                job.role_arn,
                job.user_id,
                job.members[0].instance_type,
                place.nodes,
                self.now,
                self.now + KEPT_SECONDS,
            )
            self.pools[pool.cluster_id] = pool
            heapq.heappush(self.expiries, (pool.until, pool.cluster_id))
            self.take(pool)
            return
        self.free(place.nodes)

    def free(self, nodes: Sequence[str]) -> None:
        events = [NodeFree(name, self.types[name]) for name in nodes]
        if self.together:
            self.take(*events)
        else:
            for event in events:
                self.take(event)

    def end_pool(self, expiry: tuple[float, str]) -> None:
        pool = self.pools.pop(expiry[1], None)
        if pool is None:
            return
        self.now = max(self.now, expiry[0])
        self.take(PoolEnded(pool.cluster_id))
        self.free(pool.node_ids)


def run(nodes: int, jobs: int, seconds: float, seed: int, together: bool) -> dict[str, float]:
    """One round: fill, then measure for about so many seconds of steps."""
    gc.collect()
    begin = time.process_time()
    bench = Bench(nodes, jobs, seed, together)
    filled = time.process_time() - begin
    _warm_up(bench)
    bench.script = []
    spent = 0.0
    while spent < seconds:
        at = len(bench.steps)
        bench.go_on()
        spent += sum(bench.steps[at:])
    whole = _repeat(bench.script, bench.placed, Bench(nodes, jobs, seed, together))
    steps = sorted(bench.steps)
    held = sum(1 for node in bench.state.fleet.nodes.values() if node.holding is not None)
    return {
        "placements_per_second": bench.placed / whole,
        "steps_per_second": len(steps) / whole,
        "step_p50_ms": 1e3 * steps[len(steps) // 2],
        "step_p99_ms": 1e3 * steps[int(len(steps) * 0.99)],
        "step_max_ms": 1e3 * steps[-1],
        "from_pools": bench.reused / max(1, bench.placed),
        "nodes_held": held / nodes,
        "fill_us_per_job": 1e6 * filled / bench.number,
        "queue": len(bench.state.queue),
    }


def _warm_up(bench: Bench) -> None:
    end = bench.placed + 200
    while bench.placed < end:
        bench.go_on()
    bench.steps.clear()
    bench.placed = bench.reused = 0


def _repeat(script: list[tuple[Sequence[PlannerEvent], float]], placed: int, bench: Bench) -> float:
    """Processor seconds that the steps take together; `bench` is as the one was that they are from."""
    _warm_up(bench)
    state, decided = bench.state, []
    gc.collect()
    begin = time.process_time()
    for events, now in script:
        state, decisions = step_all(state, events, now)
        decided.append(decisions)
    spent = time.process_time() - begin
    again = sum(isinstance(decision, Place) for decisions in decided for decision in decisions)
    if again != placed:
        raise AssertionError(f"the same steps placed {again} jobs and {placed} before")
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="of steps, in each round")
    parser.add_argument("--one-by-one", action="store_true", help="each node that comes back is a step of its own")
    wanted = parser.parse_args()
    figures: dict[str, Any] = {"nodes": wanted.nodes, "rounds": wanted.rounds, "python": sys.version.split()[0]}
    print(f"{wanted.nodes} nodes, {USERS} users, {POOLS} pools; medians of {wanted.rounds} rounds (lowest … highest)")
    print(f"{'jobs':>8} {'placements/s':>26} {'step p50':>10} {'p99':>10} {'max':>10} {'fill/job':>10} {'memory':>9}")
    for jobs in sorted(wanted.jobs):
        rounds = [run(wanted.nodes, jobs, wanted.seconds, seed, not wanted.one_by_one) for seed in range(wanted.rounds)]
        middle = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
        rates = sorted(each["placements_per_second"] for each in rounds)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        figures[str(jobs)] = {"median": middle, "rounds": rounds, "peak_memory_mib": memory}
        rate = f"{middle['placements_per_second']:.0f} ({rates[0]:.0f} … {rates[-1]:.0f})"
        print(
            f"{jobs:>8} {rate:>26} {middle['step_p50_ms']:>7.3f} ms {middle['step_p99_ms']:>7.3f} ms"
            f" {middle['step_max_ms']:>7.1f} ms {middle['fill_us_per_job']:>7.1f} µs {memory:>5.0f} MiB",
            flush=True,
        )
    if wanted.json is not None:
        wanted.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
