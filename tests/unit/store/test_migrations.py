"""The migrated schema is the one that the models say, on every database kind that there is a server for."""

import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from tests.support.postgres import PostgresServer
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


@pytest.mark.needs("postgres")
def test_postgresql_matches_the_models_also_when_migrated_twice(postgres: PostgresServer) -> None:
    url = postgres.new_database(migrated=False)
    migrate(url)
    migrate(url)
    assert differences(url) == []


@pytest.mark.needs("postgres")
def test_two_that_migrate_at_once_take_turns(postgres: PostgresServer) -> None:
    url = postgres.new_database(migrated=False)
    code = "import sys; from trainshed_service.store import migrate; migrate(sys.argv[1])"
    both = [subprocess.Popen([sys.executable, "-c", code, url]) for _ in range(2)]
    assert [process.wait(120) for process in both] == [0, 0]
    assert differences(url) == []
