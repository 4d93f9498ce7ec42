"""One process of the service delivers at a time: a row that says who, until when.

Invariant: the row is taken and renewed only by an update guarded by its holder and its end. A holder that could not
renew in time stops sending before the end (`held`); so two never send at once while their clocks agree to within
the margin.
"""

from __future__ import annotations

import os
import secrets

from sqlalchemy import update
from sqlalchemy.orm import Session

from trainshed_service.clock import Clock
from trainshed_service.store import Database
from trainshed_service.store.tables import changed, leases

NAME = "notifications"
_MARGIN = 0.25
"""Part of the lease's length at whose end nothing new is begun."""


class Lease:
    def __init__(self, database: Database, clock: Clock, seconds: float, name: str = NAME) -> None:
        self.holder = f"{os.getpid()}-{secrets.token_hex(8)}"
        self.seconds = seconds
        self._database = database
        self._clock = clock
        self._name = name
        self._until = 0.0

    async def hold(self) -> bool:
        """Take the lease, or renew it where a third of it has passed; whether it is ours now."""
        now = self._clock.now()
        if now < self._until - self.seconds * 2 / 3:
            return True
        taken = await self._database.write(lambda session: self._take(session, now))
        self._until = now + self.seconds if taken else 0.0
        return taken

    def held(self) -> bool:
        """Whether something may be begun under it."""
        return self._clock.now() < self._until - _MARGIN * self.seconds

    async def release(self) -> None:
        """Let another process take it at once."""
        if self._until == 0:
            return
        self._until = 0.0
        await self._database.write(self._give)

    def _take(self, session: Session, now: float) -> bool:
        free = (leases.c.holder == self.holder) | (leases.c.expires_at <= now)
        taken = update(leases).where(leases.c.name == self._name, free)
        return changed(session, taken.values(holder=self.holder, expires_at=now + self.seconds)) == 1

    def _give(self, session: Session) -> None:
        mine = update(leases).where(leases.c.name == self._name, leases.c.holder == self.holder)
        session.execute(mine.values(holder="", expires_at=0.0))
