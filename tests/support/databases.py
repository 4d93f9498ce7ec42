"""Databases for tests: SQLite files with the newest schema, copied from one that was migrated once in each process."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from sqlalchemy.engine import make_url

from trainshed_service.store import migrate


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
        log = path.with_name(path.name + "-wal")
        assert not log.exists() or log.stat().st_size == 0, "part of the schema is still in the write-ahead log"
        return path.read_bytes()
