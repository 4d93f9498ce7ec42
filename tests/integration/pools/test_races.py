"""Two at once on one pool, many times over: exactly one wins, nothing is lost, nothing is held twice.

A few times in each run, as often as the rules of the project ask for in a deep one (`make test-races`).
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.integration.core.driving import create, describe
from tests.integration.pools.test_life import node_states, pool_of, update, warm
from tests.support.api_process import ApiProcess
from tests.support.depth import DEEP
from tests.support.scripted_agent import ScriptedAgent
from tests.support.wait import wait_until

Join = Callable[..., ScriptedAgent]
TERMINAL = {"Completed", "Failed", "Stopped"}
pytestmark = pytest.mark.timeout(3600 if DEEP else 900)
ENDED_WHILE_TAKEN = 500 if DEEP else 10
STOPPED_AT_FULL_CAPACITY = 100 if DEEP else 8
STOPPED_WHILE_STARTING = 1000 if DEEP else 16


@contextmanager
def driven(agent: ScriptedAgent) -> Iterator[None]:
    """The agent goes on by itself; two instances with one slot at once are a failure of the test."""
    over = threading.Event()

    def drive() -> None:
        while not over.wait(0.01):
            agent.step()

    with ThreadPoolExecutor(1) as pool:
        driving = pool.submit(drive)
        try:
            yield
        finally:
            over.set()
            driving.result()


def until(api: ApiProcess, name: str, *statuses: str) -> dict[str, Any]:
    def look() -> dict[str, Any]:
        found = describe(api, name)
        return found if found["TrainingJobStatus"] in statuses else {}

    return wait_until(look, every=0.03, what=f"{name} is {' or '.join(statuses)}")


def until_pool(api: ApiProcess, name: str, *statuses: str) -> str:
    wait_until(lambda: pool_of(api, name).get("Status") in statuses, every=0.03, what=f"the pool of {name}")
    return str(pool_of(api, name)["Status"])


def test_a_pool_that_is_ended_while_a_matching_job_comes(api: ApiProcess, join: Join) -> None:
    """Either the job takes the pool and the end is refused, or the pool ends and the job starts afresh."""
    agent = join(api, slots=1)
    agent.exits = 0
    seen = {"Reused": 0, "Terminated": 0}
    clients = [api.new_client() for _ in range(2)]
    delays = random.Random(7)
    with driven(agent), ThreadPoolExecutor(2) as pool:
        create(api, "g7-0", **warm())
        for number in range(1, ENDED_WHILE_TAKEN + 1):
            before, after = f"g7-{number - 1}", f"g7-{number}"
            until_pool(api, before, "Available")
            start = threading.Barrier(2)
            pause = delays.uniform(-0.004, 0.004)

            def end(name: str = before, start: threading.Barrier = start, pause: float = pause) -> bool:
                start.wait()
                threading.Event().wait(max(0.0, pause))
                try:
                    clients[0].update_training_job(TrainingJobName=name, ResourceConfig={"KeepAlivePeriodInSeconds": 0})
                except ClientError as error:
                    assert "taken by another job" in str(error)
                    return False
                return True

            def come(name: str = after, start: threading.Barrier = start, pause: float = pause) -> None:
                start.wait()
                threading.Event().wait(max(0.0, -pause))
                create(api, name, **warm())

            ended, created = pool.submit(end), pool.submit(come)
            created.result()
            was_ended = ended.result()
            until(api, after, "Completed")
            status = until_pool(api, before, "Reused", "Terminated")
            assert (status == "Terminated") == was_ended
            seen[status] += 1
        until_pool(api, after, "Available")
        update(api, after, 0)
        wait_until(lambda: node_states(api) == ["free"])
    assert sum(seen.values()) == ENDED_WHILE_TAKEN


def test_two_matching_jobs_and_one_pool(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=2)
    agent.exits = 0
    with driven(agent), ThreadPoolExecutor(2) as pool:
        create(api, "first", **warm())
        until_pool(api, "first", "Available")
        names = ["left", "right"]
        for made in [pool.submit(create, api, name, **warm()) for name in names]:
            made.result()
        for name in names:
            until(api, name, "Completed")
        assert pool_of(api, "first")["ReusedByJob"] in names
        for name in names:
            until_pool(api, name, "Available")
        assert node_states(api) == ["warm", "warm"]


def test_warm_instances_are_counted_once(api: ApiProcess, join: Join) -> None:
    """Two slots: one job leaves a pool; of two further jobs one takes it and the other the free slot."""
    agent = join(api, slots=2)
    agent.exits = 0
    with driven(agent):
        create(api, "one", **warm())
        until_pool(api, "one", "Available")
        create(api, "two", **warm())
        create(api, "three")
        for name in ("two", "three"):
            until(api, name, "Completed")


def test_stops_and_creates_at_full_capacity_never_overlap(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=1)
    with driven(agent):
        for number in range(STOPPED_AT_FULL_CAPACITY):
            create(api, f"g4-{number}", **warm(seconds=60 if number % 2 else 0))
            if number:
                api.client().stop_training_job(TrainingJobName=f"g4-{number - 1}")
                until(api, f"g4-{number - 1}", "Stopped")
            wait_until(lambda: len(agent.held) <= 1)
        last = f"g4-{STOPPED_AT_FULL_CAPACITY - 1}"
        until(api, last, "InProgress")
        api.client().stop_training_job(TrainingJobName=last)
        until(api, last, "Stopped")


def test_the_period_of_the_last_job_counts(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=1)
    agent.exits = 0
    with driven(agent):
        create(api, "long", **warm(seconds=600))
        until_pool(api, "long", "Available")
        create(api, "short", **warm(seconds=1))
        until(api, "short", "Completed")
        assert until_pool(api, "short", "Terminated") == "Terminated"
        assert pool_of(api, "short")["ResourceRetainedBillableTimeInSeconds"] in (1, 2)
        wait_until(lambda: node_states(api) == ["free"])


def test_stops_at_random_moments_of_a_start(api: ApiProcess, join: Join) -> None:
    """Afterwards all slots are free or warm, none lost, none doubled."""
    agent = join(api, slots=4)
    moments = random.Random(11)
    with driven(agent), ThreadPoolExecutor(4) as pool:

        def one(number: int) -> None:
            name = f"cycle-{number}"
            create(api, name, 1 + number % 2, **warm(1 + number % 2, seconds=moments.choice([0, 1, 60])))
            threading.Event().wait(moments.uniform(0, 0.15))
            api.client().stop_training_job(TrainingJobName=name)
            until(api, name, *TERMINAL)

        for done in [pool.submit(one, number) for number in range(STOPPED_WHILE_STARTING)]:
            done.result()
        wait_until(lambda: set(node_states(api)) <= {"free", "warm"}, what="all slots are free or warm")
        assert len(node_states(api)) == 4
        for pool_row in api.rest("/v1/pools")["pools"]:
            with suppress(ClientError):  # it has expired since it was listed
                update(api, pool_row["job"], 0)
        wait_until(lambda: node_states(api) == ["free"] * 4)
