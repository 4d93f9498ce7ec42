"""The applier on a real database: what it decides is committed, told, stored, and found again by the next start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select, update

from tests.support.databases import make_database
from tests.support.wait import wait_until_async
from trainshed_service.clock import ManualClock
from trainshed_service.core import Core, build_core
from trainshed_service.identity import IdentityService, Principal
from trainshed_service.jobs.effects import Effects
from trainshed_service.scheduling import JobGone, NodeFree, Tick
from trainshed_service.scheduling.applier import Scheduler
from trainshed_service.scheduling.placement import Placement
from trainshed_service.scheduling.recording import FOLDER
from trainshed_service.scheduling.replay import replay
from trainshed_service.settings import Settings
from trainshed_service.store import Database
from trainshed_service.store.tables import agents, attempts, jobs, nodes, usage, users
from trainshed_service.wire import ApiError

ACCOUNT = "123456789012"
ADMIN = Principal("user", "admin", ACCOUNT, "arn:aws:iam::123456789012:user/admin", is_admin=True, user_id=1)
ANN = Principal("user", "ann", ACCOUNT, "arn:aws:iam::123456789012:user/ann", user_id=2)
PRIORITY = "trainshed:priority"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def core(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Core]:
    settings = Settings(home=tmp_path, port=1, gateway_port=2, ingest_port=3, roles="open")
    make_database(settings.resolved_database_url)
    make_database(settings.resolved_logs_database_url)
    database = Database(settings.resolved_database_url)
    identity = IdentityService(tmp_path, clock)
    await database.write(lambda session: identity.bootstrap(session, ACCOUNT))
    await database.write(
        lambda session: session.execute(insert(users).values(id=2, name="ann", is_admin=False, created_at=0.0))
    )
    database.close()
    built = await build_core(settings, clock)
    yield built
    await built.close()


@dataclass
class Running:
    """A scheduler at work. New jobs of `core` are told to it as well."""

    core: Core
    clock: ManualClock
    scheduler: Scheduler
    placements: list[Placement] = field(default_factory=list)

    async def create(self, name: str, *, principal: Principal = ADMIN, **members: Any) -> int:
        await self.core.services.jobs.create(request(name, **members), principal=principal, raw_body=b"{}")
        row = await self.row(name)
        self.scheduler.submit(
            [
                self.scheduler.queued(
                    row.id, name, row.request, user_id=row.user_id, priority=row.priority, queued_at=row.created_at
                )
            ]
        )
        return int(row.id)

    async def row(self, name: str) -> Any:
        return await self.core.services.database.read(
            lambda session: session.execute(select(jobs).where(jobs.c.name == name)).one()
        )

    async def until(self, name: str, **values: Any) -> Any:
        while True:
            row = await asyncio.wait_for(self.row(name), 30)
            if all(getattr(row, key) == value for key, value in values.items()):
                return row
            await asyncio.sleep(0.01)


def request(name: str, count: int = 1, kind: str = "ml.c5.xlarge", **members: Any) -> dict[str, Any]:
    return {
        "TrainingJobName": name,
        "RoleArn": "arn:aws:iam::123456789012:role/R",
        "AlgorithmSpecification": {"TrainingImage": "image", "TrainingInputMode": "File"},
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/out/"},
        "ResourceConfig": {"InstanceType": kind, "InstanceCount": count, "VolumeSizeInGB": 10},
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
        **members,
    }


async def add_nodes(core: Core, *names: str) -> None:
    def add(session: Any) -> None:
        session.execute(
            insert(agents).values(
                id="agent", name="agent", key_hash="x", boot_id="b", facts={}, last_seen_at=0.0, lease_expires_at=4e9
            )
        )
        for slot, name in enumerate(names):
            session.execute(insert(nodes).values(id=name, agent_id="agent", slot=slot, instance_types=[], state="free"))

    await core.services.database.write(add)


@asynccontextmanager
async def scheduling(core: Core, clock: ManualClock) -> AsyncIterator[Running]:
    services = core.services
    placements: list[Placement] = []

    def placed(placement: Placement, extra: str) -> None:
        assert extra == placement.attempt_id  # what was done in the same transaction
        placements.append(placement)

    def carry_out(effects: Effects) -> None:
        scheduler.submit(effects.planner)

    scheduler = Scheduler(
        services.database,
        clock,
        services.settings,
        lambda: {"agent"},
        placed,
        carry_out,
        lambda session, placement: placement.attempt_id,
    )
    task = asyncio.create_task(scheduler.run())
    try:
        yield Running(core, clock, scheduler, placements)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()


async def test_a_job_is_placed_the_next_waits_with_a_reason_and_both_are_found_again(
    core: Core, clock: ManualClock, tmp_path: Path
) -> None:
    await add_nodes(core, "n1", "n2")
    async with scheduling(core, clock) as running:
        await running.create("one", principal=ANN)
        await running.until("one", state="placed")
        two = await running.create("two", count=2)
        reason = "Waiting for capacity: needs 2 × ml.c5.xlarge; 1 free, 1 busy"
        await running.until("two", status_message=reason)
        start = running.scheduler.projected_start(two)
        assert start == clock.now() + 60
        shown = running.scheduler.explain(two)
        assert shown is not None and shown.startswith(f"{reason}; projected start 20")
        (row,) = running.scheduler.queue(10)
        assert (row["name"], row["queuePosition"], row["projectedStart"]) == ("two", 0, start)
        clock.advance(15)
        running.scheduler.submit([Tick()])
        used = await wait_until_stored(core)
        assert used == pytest.approx(15 + 10, abs=0.1)  # what it holds, and what a start counts
    (recorded,) = (tmp_path / FOLDER).iterdir()
    assert replay(recorded).difference is None
    async with scheduling(core, clock) as again:
        await wait_until_async(lambda: again.scheduler.explain(two))
        assert again.scheduler.projected_start(two) == start
        (held,) = again.scheduler._state.fleet.jobs.values()
        assert (held.user_id, held.ends_at) == (2, clock.now() - 15 + 60)
        assert again.scheduler._state.shares.used(2, clock.now()) == pytest.approx(used, abs=0.1)


async def wait_until_stored(core: Core) -> float:
    while True:
        used = await core.services.database.read(
            lambda session: session.scalar(select(usage.c.instance_seconds).where(usage.c.user_id == 2))
        )
        if used is not None:
            return float(used)
        await asyncio.sleep(0.01)


async def test_a_job_fails_when_it_has_waited_for_accelerators_as_long_as_it_wanted(
    core: Core, clock: ManualClock
) -> None:
    limits = {"MaxRuntimeInSeconds": 60, "MaxPendingTimeInSeconds": 1800}
    async with scheduling(core, clock) as running:
        await running.create("gpu", kind="ml.p3.2xlarge", StoppingCondition=limits)
        await running.create("cpu", StoppingCondition=limits)
        await wait_until_async(lambda: len(running.scheduler._state.queue) == 2)
        clock.advance(1801)
        running.scheduler.submit([Tick()])
        row = await running.until("gpu", state="failed")
        assert row.failure_reason.startswith("CapacityError: Unable to provision requested ML compute capacity.")
        assert (row.status, row.secondary_status) == ("Failed", "Failed")
        assert (await running.row("cpu")).state == "queued"


async def test_a_decision_that_does_not_hold_any_more_changes_nothing(core: Core, clock: ManualClock) -> None:
    await add_nodes(core, "n1")
    async with scheduling(core, clock) as running:
        await wait_until_async(lambda: running.scheduler._state.fleet.free == [1])
        await core.services.database.write(lambda session: session.execute(update(nodes).values(state="quarantined")))
        one = await running.create("one")
        await wait_until_async(lambda: running.scheduler._state.fleet.free == [])  # rebuilt
        assert (await running.row("one")).state == "queued"
        assert "1 more node" in str(running.scheduler.explain(one))
        count = await core.services.database.read(lambda session: len(session.execute(select(attempts)).all()))
        assert count == 0
        await core.services.database.write(lambda session: session.execute(update(nodes).values(state="free")))
        running.scheduler.submit([NodeFree("n1", frozenset())])
        await running.until("one", state="placed")


async def test_a_job_with_a_higher_priority_goes_first(core: Core, clock: ManualClock) -> None:
    async with scheduling(core, clock) as running:
        one = await running.create("one")
        two = await running.create("two", Tags=[{"Key": PRIORITY, "Value": "7"}])
        low = await running.create("low", principal=ANN, Tags=[{"Key": PRIORITY, "Value": "-7"}])
        await wait_until_async(lambda: len(running.scheduler._state.queue) == 3)
        assert [row["name"] for row in running.scheduler.queue(10)] == ["two", "one", "low"]
        assert [running.scheduler.queue_position(job) for job in (one, two, low)] == [1, 0, 2]
        assert [row["name"] for row in running.scheduler.queue(10, 2)] == ["low"]
        assert (await running.row("two")).priority == 7
        running.scheduler.submit([JobGone(two)])
        await wait_until_async(lambda: running.scheduler.queue_position(one) == 0)


@pytest.mark.parametrize("value", ["high", "", "101", "-101", "1.5", "٣"])
async def test_a_priority_that_is_none_is_refused(core: Core, value: str) -> None:
    with pytest.raises(ApiError) as caught:
        await core.services.jobs.create(
            request("job", Tags=[{"Key": PRIORITY, "Value": value}]), principal=ADMIN, raw_body=b"{}"
        )
    assert caught.value.code == "ValidationException"
    assert "a whole number from -100 to 100" in caught.value.message


async def test_a_priority_above_all_others_is_for_administrators(core: Core) -> None:
    with pytest.raises(ApiError) as caught:
        await core.services.jobs.create(
            request("job", Tags=[{"Key": PRIORITY, "Value": "1"}]), principal=ANN, raw_body=b"{}"
        )
    assert "administrators only" in caught.value.message
