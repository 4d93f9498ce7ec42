"""The short-lived S3 credentials of attempts, as their assignments carry them.

Invariants: a set is valid only for what the job's request names (`jobs.grants`) and ends with the attempt; secrets are
kept in memory only. After a restart of the service a fresh set is made; the older one stays valid until its own end,
so running processes notice nothing.
"""

from __future__ import annotations

import asyncio
from typing import Any

from sqlalchemy.orm import Session

from trainshed_service.clock import Clock
from trainshed_service.identity import IdentityService
from trainshed_service.jobs.grants import policy_of
from trainshed_service.settings import Settings
from trainshed_service.store import Database
from trainshed_worker.protocol import ObjectStoreAccess

LIFETIME_SECONDS = 12 * 3600.0
RENEW_BEFORE_SECONDS = 3 * 3600.0


class JobCredentials:
    def __init__(self, database: Database, identity: IdentityService, clock: Clock, settings: Settings) -> None:
        self._database = database
        self._identity = identity
        self._clock = clock
        self._settings = settings
        self._sets: dict[str, ObjectStoreAccess] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def get(self, attempt_id: str, request: dict[str, Any]) -> ObjectStoreAccess:
        """The current set of the attempt, made or renewed where there is none that lasts."""
        async with self._locks.setdefault(attempt_id, asyncio.Lock()):
            known = self._sets.get(attempt_id)
            if known is not None and not self._is_due(known):
                return known
            fresh = await self._database.write(lambda session: self.issue(session, attempt_id, request))
            self._sets[attempt_id] = fresh
            return fresh

    def issue(self, session: Session, attempt_id: str, request: dict[str, Any]) -> ObjectStoreAccess:
        """A new set, in the caller's transaction; `remember` is due when that is committed."""
        expires_at = self._clock.now() + LIFETIME_SECONDS
        made = self._identity.issue_job_key(session, attempt_id, policy_of(request), expires_at)
        return ObjectStoreAccess(
            endpoint_url=self._settings.resolved_gateway_url,
            region=self._settings.region,
            access_key_id=made.access_key_id,
            secret_access_key=made.secret_access_key,
            session_token=made.session_token or "",
            expires_at=expires_at,
        )

    def remember(self, attempt_id: str, issued: ObjectStoreAccess) -> None:
        self._sets[attempt_id] = issued

    def gang_secret(self, attempt_id: str) -> str:
        """What only the hosts of this attempt know; the same for all of them, in every replica and after restarts."""
        return self._identity.derive_key(f"gang:{attempt_id}").hex()

    def none(self) -> ObjectStoreAccess:
        """What an assignment that has ended carries: nothing that works."""
        return ObjectStoreAccess(
            endpoint_url=self._settings.resolved_gateway_url,
            region=self._settings.region,
            access_key_id="",
            secret_access_key="",
            session_token="",
            expires_at=0.0,
        )

    def due(self) -> list[str]:
        """Attempts whose set must be renewed now."""
        return [attempt_id for attempt_id, known in self._sets.items() if self._is_due(known)]

    def forget(self, attempt_id: str) -> None:
        self._sets.pop(attempt_id, None)
        self._locks.pop(attempt_id, None)

    def _is_due(self, known: ObjectStoreAccess) -> bool:
        return known.expires_at - self._clock.now() < RENEW_BEFORE_SECONDS
