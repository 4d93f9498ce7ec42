"""The migrated schema is the one that the models say, on every database kind that there is a server for."""

import os
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from trainshed_service.store import migrate
from trainshed_service.store.database import make_engine
from trainshed_service.store.models import Base


def differences(url: str) -> list[object]:
    engine = make_engine(url, readers=1)
    try:
        with engine.connect() as connection:
            return list(compare_metadata(MigrationContext.configure(connection), Base.metadata))
    finally:
        engine.dispose()


def test_sqlite_matches_the_models_also_when_migrated_twice(tmp_path: Path) -> None:
    folder = tmp_path / "a home with 100% spaces"
    folder.mkdir()
    url = f"sqlite:///{folder / 'db.sqlite3'}"
    migrate(url)
    migrate(url)
    assert differences(url) == []


@pytest.mark.skipif(
    "TRAINSHED_TEST_POSTGRES" not in os.environ, reason="needs TRAINSHED_TEST_POSTGRES, the URL of an empty database"
)
def test_postgresql_matches_the_models() -> None:
    url = os.environ["TRAINSHED_TEST_POSTGRES"]
    migrate(url)
    assert differences(url) == []
