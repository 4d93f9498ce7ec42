"""A log store over a SQLite file of its own, and batches in few words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trainshed_service.clock import ManualClock
from trainshed_service.logs import LogStore
from trainshed_service.store import Database
from trainshed_service.store.models import Base, LogChunk, LogSource, LogStream

STREAMS = ("job/algo-1-100", "job/algo-2-100")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'logs.sqlite3'}")
    Base.metadata.create_all(database.engine, tables=[each.__table__ for each in (LogStream, LogChunk, LogSource)])
    yield database
    database.close()


@pytest.fixture
async def store(database: Database, clock: ManualClock) -> LogStore:
    store = LogStore(database, clock)
    await store.ensure_streams("job", STREAMS)
    return store
