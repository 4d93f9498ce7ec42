"""Engines with the settings that `database` relies on: on SQLite WAL, a sync per commit, explicit BEGIN."""

from __future__ import annotations

import sqlite3
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.pool import QueuePool

BUSY_TIMEOUT_MS = 30_000
_PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "foreign_keys=ON",
    "cache_size=-32000",
    "temp_store=MEMORY",
)


def make_engine(url: str, *, readers: int = 4) -> Engine:
    """Connections that were taken with the execution option `trainshed_write` begin as writers."""
    if not make_url(url).drivername.startswith("sqlite"):
        # A server of encoding SQL_ASCII, as a C locale makes it, else answers in bytes.
        encoding = {"client_encoding": "utf8"}
        return create_engine(url, pool_size=readers + 1, max_overflow=2, pool_pre_ping=True, connect_args=encoding)
    engine = create_engine(
        url,
        poolclass=QueuePool,
        pool_size=readers + 1,
        max_overflow=0,
        connect_args={"check_same_thread": False, "timeout": BUSY_TIMEOUT_MS / 1000},
    )

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: Any) -> None:
        configure(connection, BUSY_TIMEOUT_MS)

    @event.listens_for(engine, "begin")
    def _begin(connection: Any) -> None:
        options = connection.get_execution_options()
        connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("trainshed_write") else "BEGIN")

    return engine


def configure(connection: sqlite3.Connection, busy_timeout_ms: int) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves
    for pragma in (*_PRAGMAS, f"busy_timeout={busy_timeout_ms}"):
        connection.execute(f"PRAGMA {pragma}")
