"""When a pool's end is told of, by the rows of either database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from trainshed_service.pools.life import end_expired, end_pool, find
from trainshed_service.pools.warning import next_warning, set_warning, warn, warning_time
from trainshed_service.store import Database
from trainshed_service.store.tables import clusters, events

FIELDS = {
    "RoleArn": "arn:aws:iam::123456789012:role/R",
    "ResourceConfig.InstanceCount": 2,
    "ResourceConfig.InstanceType": "ml.c5.xlarge",
}


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    made = Database(database_url)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("period", "ahead", "expected"),
    [
        (3600, 300, 3300),
        (600, 300, 300),
        (599, 300, 299.5),
        (60, 300, 30),
        (1, 300, 0.5),
        (3600, 0, None),
        (0, 300, None),
    ],
)
def test_the_time_is_so_long_before_or_half_of_the_period(period: float, ahead: float, expected: float | None) -> None:
    assert warning_time(1000.0, 1000.0 + period, ahead) == (None if expected is None else 1000.0 + expected)


def test_each_end_is_told_of_once_and_an_extension_is_a_new_end(database: Database) -> None:
    database.write_sync(lambda session: pool(session, "c1", until=1000.0))
    database.write_sync(lambda session: set_warning(session, "c1", 0.0, 300.0))
    assert database.read_sync(next_warning) == 700.0
    assert look(database, 699.0) == []
    assert look(database, 700.0) == [300]
    assert look(database, 701.0) == [] and database.read_sync(next_warning) is None
    database.write_sync(lambda session: session.execute(update(clusters).values(warm_until=2000.0)) and None)
    database.write_sync(lambda session: set_warning(session, "c1", 800.0, 300.0))
    assert look(database, 1699.0) == []
    assert look(database, 1750.0) == [250], "late, with what is left"


def test_what_has_ended_or_is_not_available_is_not_told_of(database: Database) -> None:
    database.write_sync(lambda session: pool(session, "held", until=1000.0, state="held"))
    database.write_sync(lambda session: pool(session, "over", until=1000.0))
    database.write_sync(lambda session: pool(session, "ended", until=1000.0))
    for each in ("held", "over", "ended"):
        database.write_sync(lambda session, each=each: set_warning(session, each, 0.0, 300.0))  # type: ignore[misc]

    def end(session: Session) -> None:
        kept = find(session, "ended")
        assert kept is not None
        end_pool(session, kept, 10.0, "somebody ended it")

    database.write_sync(end)
    assert database.read_sync(next_warning) == 700.0
    database.write_sync(lambda session: end_expired(session, 1000.0) and None)
    assert look(database, 1000.0) == []


def pool(session: Session, name: str, *, until: float, state: str = "warm") -> None:
    session.execute(
        insert(clusters).values(
            id=name,
            state=state,
            epoch=1,
            created_at=0.0,
            match_key="k",
            match_fields=FIELDS,
            last_job_id=7,
            warm_since=0.0,
            warm_until=until,
        )
    )


def look(database: Database, now: float) -> list[int]:
    """Seconds left of the warnings that a look at `now` records."""
    before = len(told(database))
    database.write_sync(lambda session: warn(session, now))
    return told(database)[before:]


def told(database: Database) -> list[int]:
    query = select(events.c.data).where(events.c.kind == "pool.expiring").order_by(events.c.id)
    return [data["secondsLeft"] for data in database.read_sync(lambda session: session.scalars(query).all())]
