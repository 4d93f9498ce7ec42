"""The one writer of a database in this process: a thread that commits what waits, as a group, with one sync to disk.

Invariants:

* A write is answered after its commit is durable, or with the error that it raised; then nothing of it is stored.
* The writes of a group first run as if none could fail, one after the other in one transaction. Where one fails, all is
  rolled back and the group runs again, each write in a savepoint of its own: one that fails spoils no other.
* A write whose waiter has gone before it began does not run. No error of a write ends the thread.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

T = TypeVar("T")
Outcome = tuple[Any, BaseException | None]

_GROUP_LIMIT = 256
_ATTEMPTS = 5


class DatabaseClosed(RuntimeError):
    """The database was closed while a write waited; nothing of that write is stored."""


class _Write:
    """`loop` null: a thread waits for the future."""

    __slots__ = ("fn", "future", "loop")

    def __init__(
        self,
        fn: Callable[[Session], Any],
        future: Future[Any] | asyncio.Future[Any],
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        self.fn = fn
        self.future = future
        self.loop = loop

    def begin(self) -> bool:
        """Whether anybody still waits."""
        if isinstance(self.future, Future):
            return self.future.set_running_or_notify_cancel()
        return not self.future.cancelled()

    def settle(self, outcome: Outcome) -> None:
        result, failure = outcome
        if self.future.done():
            return  # the waiter went away meanwhile
        if failure is not None:
            self.future.set_exception(failure)
        else:
            self.future.set_result(result)


class Writer:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine.execution_options(trainshed_write=True)
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._closing = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="db-write", daemon=True)
        self._thread.start()

    def submit(self, fn: Callable[[Session], T]) -> Future[T]:
        """For threads that wait."""
        future: Future[T] = Future()
        self._put(_Write(fn, future, None))
        return future

    def submit_from(self, loop: asyncio.AbstractEventLoop, fn: Callable[[Session], T]) -> asyncio.Future[T]:
        """For coroutines of `loop`, which is the one that runs."""
        future: asyncio.Future[T] = loop.create_future()
        self._put(_Write(fn, future, loop))
        return future

    def close(self) -> None:
        """Finish the writes that were accepted, refuse later ones."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def _put(self, write: _Write) -> None:
        with self._closing:
            if self._closed:
                raise DatabaseClosed("the database is closed")
            self._queue.put(write)

    def _run(self) -> None:
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
            group = [item for item in group if item.begin()]
            if group:
                _settle(group, self._commit(group))

    def _commit(self, group: list[_Write]) -> list[Outcome]:
        """Commit all in one transaction. Where the group as a whole fails, each gets a transaction of its own."""
        try:
            return self._tried(lambda: self._run_together(group))
        except BaseException as error:  # noqa: BLE001 - it belongs to a caller, who gets it
            if len(group) == 1:
                return [(None, error)]
        try:
            return self._tried(lambda: self._run_apart(group))
        except BaseException:  # noqa: BLE001 - it belongs to the callers, who get it one by one
            return [outcome for item in group for outcome in self._commit([item])]

    def _tried(self, transact: Callable[[], list[Outcome]]) -> list[Outcome]:
        for _ in range(_ATTEMPTS - 1):
            try:
                return transact()
            except DBAPIError as error:
                if not _worth_another_try(error):
                    raise
        return transact()

    def _run_together(self, group: list[_Write]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        with self._session() as session, session.begin():
            for item in group:
                result = item.fn(session)
                session.flush()
                outcomes.append((result, None))
        return outcomes

    def _run_apart(self, group: list[_Write]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        with self._session() as session, session.begin():
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

    def _session(self) -> Session:
        return Session(self._engine, autoflush=False, expire_on_commit=False)


def _settle(group: list[_Write], outcomes: list[Outcome]) -> None:
    """Answer all; each event loop is woken once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_Write, Outcome]]] = {}
    for item, outcome in zip(group, outcomes, strict=True):
        if item.loop is None:
            item.settle(outcome)
        else:
            by_loop.setdefault(item.loop, []).append((item, outcome))
    for loop, settled in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle_here, settled)
        except RuntimeError:
            if not loop.is_closed():  # else nobody waits any more
                raise


def _settle_here(settled: list[tuple[_Write, Outcome]]) -> None:
    for item, outcome in settled:
        item.settle(outcome)


def _worth_another_try(error: DBAPIError) -> bool:
    """Serialization failures, deadlocks and lost connections: the same transaction may succeed when run again."""
    if error.connection_invalidated:
        return True
    code = getattr(error.orig, "sqlstate", None)
    return code in {"40001", "40P01"}
