"""Look-ups that take less time than handing them to another thread: on SQLite they run where they are asked for.

Invariants: a look-up never waits for a lock (where it would have to, it goes to the pool as any other read); it sees
every write that has returned. It must be short: a few rows, found by an index.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Engine

from trainshed_service.store.engine import configure
from trainshed_service.store.prepared import Prepared, Row


class Glance:
    """One read connection beside the pool, used by one thread at a time; SQLite files only."""

    def __init__(self, engine: Engine) -> None:
        self._dialect = engine.dialect
        self._connect = engine.dialect.connect
        self._arguments = engine.dialect.create_connect_args(engine.url)
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()

    def rows(self, prepared: Prepared, parameters: Mapping[str, Any]) -> list[Row] | None:
        """None: not now; take another way."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if self._connection is None:
                self._connection = self._open()
            return prepared.on(self._dialect).rows(self._connection, parameters)
        except sqlite3.OperationalError:
            return None  # busy, or a fault that the other way meets and tells
        finally:
            self._lock.release()

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _open(self) -> sqlite3.Connection:
        positional, named = self._arguments
        connection: Any = self._connect(*positional, **{**named, "check_same_thread": False})
        configure(connection, busy_timeout_ms=0)
        connection.execute("PRAGMA query_only=ON")
        return connection  # type: ignore[no-any-return]
