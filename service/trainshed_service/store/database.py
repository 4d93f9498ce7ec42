"""One way to the database for every room: writes through one writer with group commit, reads from a pool.

Invariants:

* `write` returns after the transaction that holds the change is durable (on SQLite: WAL with synchronous=FULL). Many
  writes that wait at once share one commit; each runs in a savepoint of its own, so one that fails spoils no other.
* A write starts with BEGIN IMMEDIATE on SQLite, so it never fails half-way because another process wrote meanwhile.
* The functions given run on the database's threads and only talk to their session: no network, no other lock. They may
  run again after a serialization failure or a commit that failed, so they change nothing but rows.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session
from sqlalchemy.pool import QueuePool

T = TypeVar("T")

_BUSY_TIMEOUT_MS = 30_000
_GROUP_LIMIT = 256
_ATTEMPTS = 5


class DatabaseClosed(RuntimeError):
    """The database was closed while a write waited; nothing of that write is stored."""


@dataclass
class _Write:
    fn: Callable[[Session], Any]
    future: Future[Any]


def make_engine(url: str, *, readers: int = 4) -> Engine:
    """An engine with the settings that the invariants above need."""
    if not make_url(url).drivername.startswith("sqlite"):
        return create_engine(url, pool_size=readers + 1, max_overflow=2, pool_pre_ping=True)
    engine = create_engine(
        url,
        poolclass=QueuePool,
        pool_size=readers + 1,
        max_overflow=0,
        connect_args={"check_same_thread": False, "timeout": _BUSY_TIMEOUT_MS / 1000},
    )

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves
        cursor = connection.cursor()
        for pragma in (
            "journal_mode=WAL",
            "synchronous=FULL",
            f"busy_timeout={_BUSY_TIMEOUT_MS}",
            "foreign_keys=ON",
            "cache_size=-32000",
            "temp_store=MEMORY",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Any) -> None:
        options = connection.get_execution_options()
        connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("trainshed_write") else "BEGIN")

    return engine


class Database:
    """See the module. `readers` is the number of reads that may run at once in this process."""

    def __init__(self, url: str, *, readers: int = 4) -> None:
        self.url = url
        self.engine = make_engine(url, readers=readers)
        self._writing = self.engine.execution_options(trainshed_write=True)
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._readers = ThreadPoolExecutor(readers, thread_name_prefix="db-read")
        self._closing = threading.Lock()
        self._closed = False
        self._writer = threading.Thread(target=self._write_loop, name="db-write", daemon=True)
        self._writer.start()

    async def write(self, fn: Callable[[Session], T]) -> T:
        """Run `fn(session)` in a write transaction; return its result once it is durable."""
        return await asyncio.wrap_future(self._submit(fn))

    def write_sync(self, fn: Callable[[Session], T], timeout: float | None = None) -> T:
        """`write` for callers without an event loop."""
        return self._submit(fn).result(timeout)

    async def read(self, fn: Callable[[Session], T]) -> T:
        """Run `fn(session)` in a read transaction that sees every write that has returned."""
        return await asyncio.wrap_future(self._readers.submit(self._read, fn))

    def read_sync(self, fn: Callable[[Session], T]) -> T:
        """`read` on the caller's own thread."""
        return self._read(fn)

    def close(self) -> None:
        """Finish the writes that were accepted, refuse later ones, close every connection."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._queue.put(None)
        self._writer.join()
        self._readers.shutdown(wait=True)
        self.engine.dispose()

    def _submit(self, fn: Callable[[Session], T]) -> Future[T]:
        future: Future[T] = Future()
        with self._closing:
            if self._closed:
                raise DatabaseClosed("the database is closed")
            self._queue.put(_Write(fn, future))
        return future

    def _read(self, fn: Callable[[Session], T]) -> T:
        with Session(self.engine, autoflush=False, expire_on_commit=False) as session:
            return fn(session)

    def _write_loop(self) -> None:
        ending = False
        while not ending:
            first = self._queue.get()
            if first is None:
                return
            group = [first]
            while len(group) < _GROUP_LIMIT:
                try:
                    item = self._queue.get_nowait()
                except queue.Empty:
                    break
                if item is None:
                    ending = True
                    break
                group.append(item)
            self._commit_group([item for item in group if item.future.set_running_or_notify_cancel()])

    def _commit_group(self, group: list[_Write]) -> None:
        """Commit all in one transaction. Where the group as a whole fails, each gets a transaction of its own."""
        if not group:
            return
        try:
            outcomes = self._transact(group)
        except BaseException as error:  # noqa: BLE001 - it belongs to the callers, who get it
            if len(group) == 1:
                group[0].future.set_exception(error)
                return
            for item in group:
                self._commit_group([item])
            return
        for item, (result, failure) in zip(group, outcomes, strict=True):
            if failure is not None:
                item.future.set_exception(failure)
            else:
                item.future.set_result(result)

    def _transact(self, group: list[_Write]) -> list[tuple[Any, BaseException | None]]:
        for attempt in range(_ATTEMPTS):
            try:
                return self._transact_once(group)
            except DBAPIError as error:
                if attempt + 1 == _ATTEMPTS or not _worth_another_try(error):
                    raise
        raise AssertionError("unreachable")

    def _transact_once(self, group: list[_Write]) -> list[tuple[Any, BaseException | None]]:
        outcomes: list[tuple[Any, BaseException | None]] = []
        with Session(self._writing, autoflush=False, expire_on_commit=False) as session, session.begin():
            for item in group:
                try:
                    with session.begin_nested():
                        result = item.fn(session)
                        session.flush()
                    outcomes.append((result, None))
                except DBAPIError as error:
                    if _worth_another_try(error):
                        raise
                    outcomes.append((None, error))
                except Exception as error:  # noqa: BLE001 - it belongs to the caller, who gets it
                    outcomes.append((None, error))
        return outcomes


def _worth_another_try(error: DBAPIError) -> bool:
    """Serialization failures, deadlocks and lost connections: the same transaction may succeed when run again."""
    if error.connection_invalidated:
        return True
    code = getattr(error.orig, "sqlstate", None)
    return code in {"40001", "40P01"}
