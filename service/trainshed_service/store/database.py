"""One way to the database for every room: writes through one writer with group commit, reads from a pool.

Invariants:

* `write` returns after the transaction that holds the change is durable (on SQLite: WAL with synchronous=FULL). Many
  writes that wait at once share one commit; one that fails spoils no other (`writer`).
* A write starts with BEGIN IMMEDIATE on SQLite, so it never fails half-way because another process wrote meanwhile.
* The functions given run on the database's threads and only talk to their session: no network, no other lock. They may
  run again after another write of their group has failed, a serialization failure or a commit that failed, so they
  change nothing but rows.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from sqlalchemy.orm import Session

from trainshed_service.store.engine import make_engine
from trainshed_service.store.glance import Glance
from trainshed_service.store.prepared import Prepared, Row
from trainshed_service.store.writer import DatabaseClosed, Writer

__all__ = ["Database", "DatabaseClosed", "make_engine"]

T = TypeVar("T")


class Database:
    """See the module. `readers` is the number of reads that may run at once in this process."""

    def __init__(self, url: str, *, readers: int = 4) -> None:
        self.url = url
        self.engine = make_engine(url, readers=readers)
        self._writer = Writer(self.engine)
        self._readers = ThreadPoolExecutor(readers, thread_name_prefix="db-read")
        self._glance = Glance(self.engine) if self.engine.dialect.name == "sqlite" else None
        self._closing = threading.Lock()
        self._closed = False

    async def write(self, fn: Callable[[Session], T]) -> T:
        """Run `fn(session)` in a write transaction; return its result once it is durable."""
        return await self._writer.submit_from(asyncio.get_running_loop(), fn)

    def write_sync(self, fn: Callable[[Session], T], timeout: float | None = None) -> T:
        """`write` for callers without an event loop."""
        return self._submit(fn).result(timeout)

    async def read(self, fn: Callable[[Session], T]) -> T:
        """Run `fn(session)` in a read transaction that sees every write that has returned."""
        return await asyncio.wrap_future(self._readers.submit(self._read, fn))

    def read_sync(self, fn: Callable[[Session], T]) -> T:
        """`read` on the caller's own thread."""
        return self._read(fn)

    async def look(self, prepared: Prepared, parameters: Mapping[str, Any]) -> list[Row]:
        """The rows of one statement that finds a few rows by an index, seeing every write that has returned.

        Two of them are two transactions: what they see together may never have been true at once.
        """
        if self._glance is not None:
            rows = self._glance.rows(prepared, parameters)
            if rows is not None:
                return rows
        return await self.read(lambda session: prepared.run(session, parameters))

    def close(self) -> None:
        """Finish the writes that were accepted, refuse later ones, close every connection."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        self._writer.close()
        self._readers.shutdown(wait=True)
        if self._glance is not None:
            self._glance.close()
        self.engine.dispose()

    def _submit(self, fn: Callable[[Session], T]) -> Future[T]:
        return self._writer.submit(fn)

    def _read(self, fn: Callable[[Session], T]) -> T:
        with Session(self.engine, autoflush=False, expire_on_commit=False) as session:
            return fn(session)
