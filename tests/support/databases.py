"""Databases for tests: SQLite files with the newest schema, copied from one that was migrated once in each process.

They refuse texts that are longer than their columns, as PostgreSQL does: SQLite alone would store them. With
TRAINSHED_TEST_DATABASE=postgresql every service of a test has a database of a PostgreSQL server instead, one server for
each pytest worker.
"""

from __future__ import annotations

import functools
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import String, Text
from sqlalchemy.engine import make_url

from trainshed_service.store import migrate
from trainshed_service.store.models import Base

if TYPE_CHECKING:
    from tests.support.postgres import PostgresServer

ON_POSTGRESQL = os.environ.get("TRAINSHED_TEST_DATABASE", "sqlite") == "postgresql"
_running = ExitStack()


def make_database(url: str) -> None:
    """The database at `url` as `migrate` leaves it. A SQLite file that is there already stays as it is."""
    if not url.startswith("sqlite"):
        migrate(url)
        return
    database = make_url(url).database
    assert database, f"not a file: {url}"
    path = Path(database)
    if not path.exists():
        path.write_bytes(_migrated())


@functools.cache
def database_settings(home: Path, *, empty: bool = False) -> dict[str, str]:
    """Settings of a service in `home`: none, so that it has files of its own, or a database that is nobody else's."""
    return {"database_url": database_server().new_database(migrated=not empty)} if ON_POSTGRESQL else {}


def end_database_server() -> None:
    _running.close()


@functools.cache
def database_server() -> PostgresServer:
    """This process's own."""
    from tests.support.postgres import PostgresServer

    folder = Path(_running.enter_context(tempfile.TemporaryDirectory(prefix="pg-")))
    return _running.enter_context(PostgresServer(folder))


@functools.cache
def _migrated() -> bytes:
    with tempfile.TemporaryDirectory(prefix="trainshed-schema-") as folder:
        path = Path(folder) / "migrated.sqlite3"
        migrate(f"sqlite:///{path}")
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript("".join(_length_checks()))
        log = path.with_name(path.name + "-wal")
        assert not log.exists() or log.stat().st_size == 0, "part of the schema is still in the write-ahead log"
        return path.read_bytes()


def _length_checks() -> Iterator[str]:
    for table in Base.metadata.sorted_tables:
        for column in table.columns:
            if isinstance(column.type, String) and not isinstance(column.type, Text) and column.type.length:
                for when in ("INSERT", f"UPDATE OF {column.name}"):
                    yield (
                        f"CREATE TRIGGER {table.name}_{column.name}_{when[:6]} BEFORE {when} ON {table.name} "
                        f"WHEN length(NEW.{column.name}) > {column.type.length} "
                        f"BEGIN SELECT RAISE(ABORT, '{table.name}.{column.name} is too long for PostgreSQL'); END;\n"
                    )
