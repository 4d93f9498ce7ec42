"""Up to which id the event log is settled: no event with such an id can still appear.

On SQLite writers take turns, so ids appear in order. On PostgreSQL an id is given out before its transaction commits: a
higher one may be seen first. Where no number is missing all is settled; where one is, a lock that waits for every
writer of events tells whether it was given up. A reader whose cursor stays at or below the horizon misses nothing.
"""

from __future__ import annotations

import structlog
from sqlalchemy import func, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from trainshed_service.store import Database
from trainshed_service.store.tables import events

_log = structlog.get_logger(__name__)
_PAGE = 1000


class Horizon:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._in_order = database.engine.dialect.name == "sqlite"
        self._settled: int | None = None

    async def settle(self) -> int | None:
        """The highest id of which all up to it are settled; None where that cannot be told yet."""
        if self._in_order:
            return await self._database.read(highest)
        if self._settled is not None:
            known = self._settled
            self._settled, gap = await self._database.read(lambda session: _without_gap(session, known))
            if not gap:
                return self._settled
        try:
            self._settled = await self._database.read(_highest_when_all_have_written)
        except DBAPIError:  # a writer takes long: what is settled so far is enough for now
            _log.info("notifications.horizon_waits", settled=self._settled)
        return self._settled


def highest(session: Session) -> int:
    """The highest id that can be seen now."""
    return session.scalar(select(func.max(events.c.id))) or 0


def _without_gap(session: Session, known: int) -> tuple[int, bool]:
    """How far numbers follow one another, and whether one is missing then."""
    while True:
        page = session.scalars(select(events.c.id).where(events.c.id > known).order_by(events.c.id).limit(_PAGE)).all()
        for number in page:
            if number != known + 1:
                return known, True
            known = number
        if len(page) < _PAGE:
            return known, False


def _highest_when_all_have_written(session: Session) -> int:
    """The lock is given when no transaction has written an event and not ended; it ends with this one."""
    session.execute(text("SET LOCAL lock_timeout = '1s'"))
    session.execute(text("LOCK TABLE events IN SHARE MODE"))
    return highest(session)
