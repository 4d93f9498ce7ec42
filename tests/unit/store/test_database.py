"""What every room relies on when it writes and reads."""

import asyncio
import threading

import pytest
from sqlalchemy import bindparam, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from trainshed_service.store import Database, DatabaseClosed
from trainshed_service.store.models import Meta
from trainshed_service.store.prepared import Prepared


@pytest.fixture
def database(database_url: str):
    database = Database(database_url)
    yield database
    database.close()


def put(key: str, value: str = "v"):
    def write(session: Session) -> str:
        session.add(Meta(key=key, value=value))
        return key

    return write


def count(session: Session) -> int:
    """Rows beyond those that a new database has."""
    return session.scalar(select(func.count()).select_from(Meta).where(Meta.key != "quota_version")) or 0


async def test_a_read_sees_every_write_that_returned(database: Database):
    for number in range(20):
        assert await database.write(put(str(number))) == str(number)
        assert await database.read(count) == number + 1


async def test_a_failing_write_spoils_no_other_in_its_group(database: Database):
    writes = [put(str(number % 10)) for number in range(40)]
    results = await asyncio.gather(*(database.write(fn) for fn in writes), return_exceptions=True)
    assert sum(isinstance(result, IntegrityError) for result in results) == 30
    assert [result for result in results if isinstance(result, str)] == [str(n) for n in range(10)]
    assert await database.read(count) == 10


async def test_an_error_of_the_function_reaches_its_caller_and_rolls_back(database: Database):
    def half(session: Session) -> None:
        session.add(Meta(key="half", value="v"))
        session.flush()
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        await database.write(half)
    assert await database.read(count) == 0


async def test_two_processes_can_write_one_file(database: Database):
    other = Database(database.url)
    try:
        await asyncio.gather(
            *(db.write(put(f"{name}{n}")) for n in range(100) for name, db in (("a", database), ("b", other)))
        )
        assert await database.read(count) == 200
    finally:
        other.close()


def test_close_finishes_accepted_writes_and_refuses_later_ones(database: Database):
    futures = [database._submit(put(str(number))) for number in range(50)]
    database.close()
    assert [future.result(0) for future in futures] == [str(number) for number in range(50)]
    with pytest.raises(DatabaseClosed):
        database.write_sync(put("late"))


async def test_a_group_without_failures_runs_once_and_one_with_a_failure_runs_again_apart(database: Database):
    """What a write returns is what its committed run returned, also where the group ran twice."""
    runs: list[str] = []

    def counted(key: str, *, fail: bool = False):
        def write(session: Session) -> int:
            runs.append(key)
            session.add(Meta(key=key, value="v"))
            session.flush()
            if fail:
                raise ValueError(key)
            return count(session)

        return write

    release = threading.Event()
    held = database._submit(lambda _: release.wait(30))
    good = [asyncio.ensure_future(database.write(counted(name))) for name in "abc"]
    await asyncio.sleep(0)
    release.set()
    assert held.result(30)
    assert await asyncio.gather(*good) == [1, 2, 3]
    assert runs == ["a", "b", "c"]

    release.clear()
    held = database._submit(lambda _: release.wait(30))
    mixed = [asyncio.ensure_future(database.write(fn)) for fn in (counted("d"), counted("e", fail=True), counted("f"))]
    await asyncio.sleep(0)
    release.set()
    assert held.result(30)
    results = await asyncio.gather(*mixed, return_exceptions=True)
    assert (results[0], str(results[1]), results[2]) == (4, "e", 5)
    assert await database.read(count) == 5


async def test_a_write_whose_waiter_left_before_it_began_does_not_run(database: Database):
    release = threading.Event()
    held = database._submit(lambda _: release.wait(30))
    waiting = asyncio.ensure_future(database.write(put("left")))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    release.set()
    assert held.result(30)
    await database.write(put("stayed"))
    assert await database.read(count) == 1


ONE = Prepared(select(Meta.__table__.c.value).where(Meta.__table__.c.key == bindparam("wanted")))
NEW = Prepared.insert(Meta.__table__, "key", "value", returning=Meta.__table__.c.key)


async def test_a_look_sees_every_write_that_returned(database: Database):
    assert await database.look(ONE, {"wanted": "0"}) == []
    for number in range(20):
        row = {"key": str(number), "value": f"value {number}"}
        assert await database.write(lambda session, row=row: NEW.run(session, row)) == [(row["key"],)]
        assert await database.look(ONE, {"wanted": row["key"]}) == [(row["value"],)]


async def test_a_look_goes_another_way_where_it_would_have_to_wait(database: Database):
    await database.write(put("here"))
    assert await database.look(ONE, {"wanted": "here"}) == [("v",)]
    if database._glance is not None:
        with database._glance._lock:
            assert await database.look(ONE, {"wanted": "here"}) == [("v",)]


async def test_a_prepared_statement_raises_sqlalchemys_errors_and_rolls_back(database: Database):
    def twice(session: Session) -> None:
        for _ in range(2):
            NEW.run(session, {"key": "same", "value": "v"})

    with pytest.raises(IntegrityError):
        await database.write(twice)
    assert await database.read(count) == 0
