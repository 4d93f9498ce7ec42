"""A notification service over a real database, with a clock that tests move and channels that only remember."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.databases import make_database
from tests.support.fake_channels import FakeChannels
from trainshed_service.clock import ManualClock
from trainshed_service.events import EventLog, record
from trainshed_service.identity import IdentityService, Principal
from trainshed_service.notifications.targets import NotificationService
from trainshed_service.settings import Settings
from trainshed_service.store import Database

ROLE = "arn:aws:iam::123456789012:role/Research"
POOL = {
    "clusterId": "c1",
    "jobId": 1,
    "jobArn": "arn:aws:sagemaker:us-east-1:123456789012:training-job/job",
    "roleArn": ROLE,
    "instanceType": "ml.c5.xlarge",
    "instanceCount": 4,
}


@dataclass
class Office:
    """All there is of an installation for these tests."""

    database: Database
    clock: ManualClock
    identity: IdentityService
    events: EventLog
    settings: Settings
    channels: FakeChannels
    service: NotificationService
    admin: Principal

    def user(self, name: str, roles: list[str] | None = None, *, is_admin: bool = False) -> Principal:
        def make(session: Any) -> Principal:
            user = self.identity.create_user(session, name, is_admin=is_admin)
            for arn in roles or []:
                self.identity.ensure_role(session, arn)
            self.identity.users.allow(session, user, roles or [])
            found = self.identity.user_principal(session, name)
            assert found is not None
            return found

        return self.database.write_sync(make)

    def happens(self, kind: str, name: str = "job", **data: Any) -> None:
        """An event now."""
        now = self.clock.now()
        self.database.write_sync(lambda session: record(session, now, kind, f"job/{name}", "it happened", data))
        self.events.published()

    async def add(self, host: str, principal: Principal | None = None, **options: Any) -> str:
        kinds = options.pop("on", [])
        self.clock.advance(1)
        made = await self.service.add(principal or self.admin, f"https://{host}/hook", kinds, **options)
        return str(made["id"])

    async def state(self, target_id: str) -> dict[str, Any]:
        return next(each for each in await self.service.list(self.admin) if each["id"] == target_id)

    def passes(self, seconds: float) -> None:
        """Time passes, and the service notices."""
        self.clock.advance(seconds)
        self.events.published()
        self.service._dispatcher.poke()


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    url = f"sqlite:///{tmp_path / 'db.sqlite3'}"
    make_database(url)
    database = Database(url)
    clock = ManualClock()
    identity = IdentityService(tmp_path, clock)
    database.write_sync(lambda session: identity.bootstrap(session, "123456789012"))
    settings = Settings(home=tmp_path)
    events = EventLog(database)
    channels = FakeChannels()
    service = NotificationService(
        database=database,
        clock=clock,
        settings=settings,
        identity=identity,
        events=events,
        account_id="123456789012",
        channels=channels,
    )
    admin = database.read_sync(lambda session: identity.user_principal(session, "admin"))
    assert admin is not None
    yield Office(database, clock, identity, events, settings, channels, service, admin)
    await service.stop()
    database.close()
