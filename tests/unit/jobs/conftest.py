from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.postgres import database_url, postgres
from trainshed_service.clock import ManualClock
from trainshed_service.core import Core, build_core
from trainshed_service.identity import IdentityService
from trainshed_service.settings import Settings
from trainshed_service.store import Database

__all__ = ["database_url", "postgres"]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def core(tmp_path: Path, clock: ManualClock, database_url: str) -> AsyncIterator[Core]:
    """The services over a database of either kind, without a server and without background work."""
    settings = Settings(home=tmp_path, port=1, gateway_port=2, ingest_port=3, database_url=database_url, roles="open")
    database = Database(settings.resolved_database_url)
    identity = IdentityService(tmp_path, clock)
    await database.write(lambda session: identity.bootstrap(session, "123456789012"))
    database.close()
    built = await build_core(settings, clock)
    yield built
    await built.close()
