"""One home with an ingest process for all tests of this folder; each test has a job of its own on two hosts."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

import pytest

from tests.support.service import LocalService
from trainshed_service.logs import LogStore
from trainshed_service.store import Database

_numbers = itertools.count(1)


@pytest.fixture(scope="package")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    with LocalService(tmp_path_factory.mktemp("a home")) as service:
        service.start("logs")
        yield service


@pytest.fixture
def job(service: LocalService) -> str:
    """Placed, its streams made."""
    name = f"job-{next(_numbers)}"
    make_streams(service, name, service.place_job(name, 2))
    return name


def make_streams(service: LocalService, job: str, names: list[str]) -> None:
    """From another process than the ingest, as the api does."""
    database = Database(service.settings.resolved_logs_database_url)
    try:
        asyncio.run(LogStore(database).ensure_streams(job, names))
    finally:
        database.close()
