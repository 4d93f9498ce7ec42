"""Two API processes on one database: one delivers, the other takes over; and no event is passed over."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, insert, select, text
from sqlalchemy.orm import Session

from tests.support.fake_channels import FakeChannels
from tests.support.postgres import PostgresServer, database_url, postgres
from tests.support.wait import wait_until_async
from trainshed_service.clock import ManualClock, SystemClock
from trainshed_service.events import EventLog, record
from trainshed_service.identity import IdentityService
from trainshed_service.notifications import NotificationService
from trainshed_service.notifications.horizon import Horizon
from trainshed_service.notifications.lease import Lease
from trainshed_service.settings import Settings
from trainshed_service.store import Database
from trainshed_service.store.tables import events, notification_targets

__all__ = ["database_url", "postgres"]


@pytest.fixture
def two(database_url: str) -> Iterator[tuple[Database, Database]]:
    first, second = Database(database_url), Database(database_url)
    yield first, second
    first.close()
    second.close()


async def test_one_holds_the_lease_until_it_ends_or_gives_it_back(two: tuple[Database, Database]) -> None:
    clock = ManualClock()
    one, other = (Lease(database, clock, 10.0) for database in two)
    assert await one.hold() and not await other.hold()
    clock.advance(6)
    assert await one.hold(), "renewed"
    clock.advance(6)
    assert not await other.hold() and one.held()
    clock.advance(2)
    assert not one.held(), "near its end nothing new is begun"
    clock.advance(3)
    assert await other.hold() and not await one.hold() and not one.held()
    await one.release()
    assert not await one.hold(), "what is not ours is not given back"
    await other.release()
    assert await one.hold()


async def test_two_services_deliver_each_event_once(two: tuple[Database, Database], tmp_path: Path) -> None:
    clock = SystemClock()
    channels = FakeChannels()
    settings = Settings(home=tmp_path, notify_lease_seconds=2)
    identity = IdentityService(tmp_path, clock)
    two[0].write_sync(lambda session: identity.bootstrap(session, "123456789012"))
    admin = two[0].read_sync(lambda session: identity.user_principal(session, "admin"))
    assert admin is not None
    made = []
    for database in two:
        log = EventLog(database)
        service = NotificationService(
            database=database,
            clock=clock,
            settings=settings,
            identity=identity,
            events=log,
            account_id="123456789012",
            channels=channels,
        )
        made.append((database, log, service))
    await made[0][2].add(admin, "https://hook.example/x", [])
    for _, _, service in made:
        service.start()
    try:
        names = [f"job-{number}" for number in range(30)]
        for number, name in enumerate(names):
            database, log, _ = made[number % 2]
            at = clock.now()
            await database.write(lambda session, name=name, at=at: _ended(session, at, name))  # type: ignore[misc]
            log.published()
        wanted = [f"Trainshed: job {name} completed" for name in names]
        await wait_until_async(lambda: len(channels.sent) >= 30)
        assert channels.of("hook.example") == wanted
        last = two[0].read_sync(lambda session: session.scalar(select(func.max(events.c.id))))
        await wait_until_async(lambda: _cursor(two[1]) == last, what="all are noted: else the last is sent again")
        await made[0][2].stop()
        await made[1][0].write(lambda session: _ended(session, clock.now(), "last"))
        await wait_until_async(lambda: len(channels.sent) == 31)
    finally:
        for _, _, service in made:
            await service.stop()


@pytest.mark.needs("postgres")
async def test_an_event_that_commits_late_is_not_passed_over(postgres: PostgresServer) -> None:
    database = Database(postgres.new_database())
    try:
        horizon = Horizon(database)
        await database.write(lambda session: _ended(session, 0.0, "first"))
        assert await horizon.settle() == 1
        written, may_end = threading.Event(), threading.Event()

        def slow() -> None:
            with Session(database.engine) as session, session.begin():
                _ended(session, 0.0, "slow")
                session.flush()
                written.set()
                may_end.wait(30)

        thread = threading.Thread(target=slow)
        thread.start()
        assert written.wait(30)
        await database.write(lambda session: _ended(session, 0.0, "quick"))
        assert await horizon.settle() == 1, "2 may still come: 3 is not settled"
        may_end.set()
        thread.join(30)
        assert await horizon.settle() == 3
        with Session(database.engine) as session:  # a number that is given up
            session.execute(insert(events).values(at=0.0, kind="x", subject="y", message="", data={}))
            session.rollback()
        await database.write(lambda session: _ended(session, 0.0, "after"))
        assert await horizon.settle() == 5
        assert (await database.read(lambda session: session.execute(text("SELECT count(*) FROM events")).scalar())) == 4
    finally:
        database.close()


def _cursor(database: Database) -> int | None:
    return database.read_sync(lambda session: session.scalar(select(notification_targets.c.cursor)))


def _ended(session: Session, at: float, name: str) -> None:
    record(session, at, "job.completed", f"job/{name}", "it ended", {"status": "Completed"})
