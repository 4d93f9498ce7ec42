"""The planner's decisions on a long mixed run are those that they were when it was last changed on purpose.

Work on its speed must change nothing of them. Who changes its rules puts the new digests here.
"""

from __future__ import annotations

import hashlib
import random

import pytest

from tests.unit.scheduling.simulation import World
from tests.unit.scheduling.world import C5, M5, ODD, job
from trainshed_service.scheduling import JobGone, Policy, QuotaRule, Quotas

P3 = "ml.p3.2xlarge"
KINDS: tuple[tuple[str, ...], ...] = ((C5,), (M5,), (P3,), (C5, M5), ())
DIGESTS = {0: "94c898d1e208aedd", 1: "6728fd6ba9e7c75d", 2: "b82b6be6487c247f"}


def digest(seed: int, jobs: int, nodes: int) -> str:
    """Of which job started when on which nodes, and of which pools ended for whom."""
    chance = random.Random(seed)
    world = World({f"n{number:03}": KINDS[number % len(KINDS)] for number in range(nodes)}, Policy())
    world.emptying = chance.choice([0.0, 1.0, 7.0])
    for number in range(1, jobs + 1):
        first, second = chance.sample([C5, M5, P3], 2)
        types = [first] * chance.choice([1, 1, 1, 2, 2, 4, 8, 16])
        if chance.random() < 0.1:
            types += [second] * chance.choice([1, 2, 5])
        if chance.random() < 0.01:
            types = [ODD]
        key = f"{types[0]} {len(types)}" if len(set(types)) == 1 else None
        if key is not None and chance.random() < 0.4:
            world.keep[number] = chance.choice([5.0, 60.0, 600.0])
        world.take(
            [
                job(
                    number,
                    *types,
                    user=chance.choice([1, 1, 2, 3, 4]),
                    role=chance.choice("XY"),
                    seconds=chance.choice([20.0, 60.0, 600.0, 3600.0]),
                    priority=chance.choice([0, 0, 0, 0, -1, 1]),
                    queued_at=world.now,
                    pool_key=key,
                    avoid=frozenset(chance.sample(sorted(world.types), 3)) if chance.random() < 0.1 else frozenset(),
                )
            ]
        )
        if chance.random() < 0.03:
            rules = (QuotaRule("user", "1", "*", chance.randint(4, nodes), "ann"), QuotaRule("role", "X", C5, 12))
            world.take([Quotas(rules if chance.random() < 0.5 else ())])
        if chance.random() < 0.05:
            gone = chance.randint(1, number)
            if gone in world.jobs and gone not in world.starts:
                world.take([JobGone(gone)])
        world.run_until(world.now + chance.random() * 12.0)
    found = hashlib.sha256()
    for number, start in sorted(world.starts.items()):
        found.update(f"{number} {start:.3f} {world.nodes_of[number]}\n".encode())
    for each in world.reclaimed:
        found.update(f"{each.cluster_id} for {each.for_job_id}\n".encode())
    return found.hexdigest()[:16]


@pytest.mark.parametrize(("seed", "jobs", "nodes"), [(0, 400, 40), (1, 400, 40), (2, 250, 400)])
def test_the_decisions_are_the_same(seed: int, jobs: int, nodes: int) -> None:
    assert digest(seed, jobs, nodes) == DIGESTS[seed]
