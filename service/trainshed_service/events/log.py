"""The event log: rows written in the same transaction as the change they tell of, and a way to follow them.

Invariant: a follower sees every event of its subject once, in order of id, whatever it missed while it was away;
`published` only wakes it, the rows are the truth.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainshed_service.store import Database
from trainshed_service.store.prepared import Prepared
from trainshed_service.store.tables import events

_NEW_EVENT = Prepared.insert(events, "at", "kind", "subject", "message", "data")


@dataclass(frozen=True)
class EventRecord:
    """`at` in epoch seconds; `subject` like `job/<name>` or `node/<id>`."""

    id: int
    at: float
    kind: str
    subject: str
    message: str
    data: dict[str, Any]


def record(
    session: Session, at: float, kind: str, subject: str, message: str, data: dict[str, Any] | None = None
) -> None:
    """Add an event to the transaction that makes the change."""
    _NEW_EVENT.run(session, {"at": at, "kind": kind, "subject": subject, "message": message, "data": data or {}})


class EventLog:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._wake = asyncio.Event()

    def published(self) -> None:
        """Events were committed: wake the followers."""
        wake, self._wake = self._wake, asyncio.Event()
        wake.set()

    def next_published(self) -> asyncio.Event:
        """Set by the next `published`. Take it before reading, so that nothing is missed between."""
        return self._wake

    async def read(self, after: int = 0, subject: str | None = None, limit: int = 500) -> list[EventRecord]:
        """Events with an id above `after`, oldest first; of one `subject` where given."""
        query = select(events).where(events.c.id > after).order_by(events.c.id).limit(limit)
        if subject is not None:
            query = query.where(events.c.subject == subject)
        rows = await self._database.read(lambda session: session.execute(query).all())
        return [EventRecord(*row) for row in rows]

    async def read_last(self, subject: str, limit: int) -> list[EventRecord]:
        """The newest events of `subject`, the newest first."""
        query = select(events).where(events.c.subject == subject).order_by(events.c.id.desc()).limit(limit)
        rows = await self._database.read(lambda session: session.execute(query).all())
        return [EventRecord(*row) for row in rows]

    async def follow(self, after: int = 0, subject: str | None = None) -> AsyncIterator[EventRecord]:
        """Every event after `after`, for ever; the caller closes the iterator."""
        while True:
            wake = self._wake
            page = await self.read(after, subject)
            for event in page:
                after = event.id
                yield event
            if not page:
                await wake.wait()
