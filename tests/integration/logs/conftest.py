"""One home with a job on two hosts, its streams made, and an ingest process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.service import LocalService
from trainshed_service.logs import LogStore
from trainshed_service.store import Database


@pytest.fixture
def service(tmp_path: Path) -> Iterator[LocalService]:
    with LocalService(tmp_path / "a home") as service:
        make_streams(service, "job", service.place_job("job", 2))
        service.start("logs")
        yield service


def make_streams(service: LocalService, job: str, names: list[str]) -> None:
    """From another process than the ingest, as the api does."""
    database = Database(service.settings.resolved_logs_database_url)
    try:
        asyncio.run(LogStore(database).ensure_streams(job, names))
    finally:
        database.close()
