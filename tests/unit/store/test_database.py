"""What every room relies on when it writes and reads."""

import asyncio

import pytest
from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from trainshed_service.store import Database, DatabaseClosed
from trainshed_service.store.models import Meta


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
    return session.scalar(select(func.count()).select_from(Meta)) or 0


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
