"""Databases for tests: SQLite files with the newest schema, copied from one that was migrated once in each process.

They refuse texts that are longer than their columns, as PostgreSQL does: SQLite alone would store them.
"""

from __future__ import annotations

import functools
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from sqlalchemy import String, Text
from sqlalchemy.engine import make_url

from trainshed_service.store import migrate
from trainshed_service.store.models import Base


def make_database(url: str) -> None:
    """The SQLite database at `url` as `migrate` leaves it. One that is there already stays as it is."""
    database = make_url(url).database
    assert database, f"not a file: {url}"
    path = Path(database)
    if not path.exists():
        path.write_bytes(_migrated())


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
