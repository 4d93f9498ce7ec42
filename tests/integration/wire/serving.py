"""A live wire application on a port of its own, over a real database and real identities, for real AWS clients."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import uvicorn
from botocore.config import Config
from botocore.credentials import Credentials as BotocoreCredentials

from tests.support.databases import database_settings
from tests.support.wait import wait_until
from trainshed_service.clock import Clock, SystemClock
from trainshed_service.identity import Bootstrap, Credentials, IdentityService
from trainshed_service.services import Services
from trainshed_service.settings import Settings
from trainshed_service.store import Database
from trainshed_service.store.models import Base
from trainshed_service.wire import Operations
from trainshed_service.wire.app import create_wire_app
from trainshed_service.wire.http import AsgiApp

REGION = "eu-west-1"


class Absent:
    """A part of the service that the test does not have: using it fails the test."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"this test has no such part of the service: {name}")


@dataclass
class Served:
    url: str
    services: Services
    bootstrap: Bootstrap

    clients: dict[tuple[str, Credentials | None], Any] = field(default_factory=dict)

    def client(self, service: str, credentials: Credentials | None = None) -> Any:
        """A boto3 client that tries once; making one is slow, so each is kept."""
        if (service, credentials) not in self.clients:
            config = Config(retries={"total_max_attempts": 1})
            made = self.session(credentials).client(service, endpoint_url=self.url, config=config)
            self.clients[service, credentials] = made
        return self.clients[service, credentials]

    @property
    def credentials(self) -> BotocoreCredentials:
        """The administrator's, for botocore's signers."""
        admin = self.bootstrap.admin
        return BotocoreCredentials(admin.access_key_id, admin.secret_access_key)

    def session(self, credentials: Credentials | None = None) -> boto3.Session:
        used = credentials or self.bootstrap.admin
        return boto3.Session(
            aws_access_key_id=used.access_key_id,
            aws_secret_access_key=used.secret_access_key,
            aws_session_token=used.session_token,
            region_name=REGION,
        )


@contextmanager
def serving(
    home: Path,
    operations: Mapping[str, Operations],
    *,
    s3: AsgiApp | None = None,
    clock: Clock | None = None,
    **parts: Any,
) -> Iterator[Served]:
    """Serve `operations`; `parts` are the members of Services that they use."""
    settings = Settings.model_validate({"home": home, "region": REGION, **database_settings(home, empty=True)})
    clock = clock or SystemClock()
    database = Database(settings.resolved_database_url)
    Base.metadata.create_all(database.engine)
    identity = IdentityService(home, clock)
    bootstrap = database.write_sync(identity.bootstrap)
    absent: dict[str, Any] = {
        name: Absent()
        for name in ("logs_database", "jobs", "nodes", "events", "logs", "metrics", "quotas", "notifications")
    }
    services = Services(settings=settings, clock=clock, database=database, identity=identity, **{**absent, **parts})
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(
            create_wire_app(services, operations, s3=s3), lifespan="off", log_level="warning", access_log=False
        )
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started, timeout=20, every=0.01, what="the server to start")
        yield Served(f"http://127.0.0.1:{listener.getsockname()[1]}", services, bootstrap)
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()
        database.close()
