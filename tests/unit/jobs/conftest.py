from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.databases import make_database
from trainshed_service.clock import ManualClock
from trainshed_service.core import Core, build_core
from trainshed_service.identity import IdentityService
from trainshed_service.settings import Settings
from trainshed_service.store import Database


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def core(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Core]:
    """The services over real databases, without a server and without background work."""
    settings = Settings(home=tmp_path, port=1, gateway_port=2, ingest_port=3)
    make_database(settings.resolved_database_url)
    make_database(settings.resolved_logs_database_url)
    database = Database(settings.resolved_database_url)
    identity = IdentityService(tmp_path, clock)
    await database.write(lambda session: identity.bootstrap(session, "123456789012"))
    database.close()
    built = await build_core(settings, clock)
    yield built
    await built.close()
