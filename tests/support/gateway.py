"""The real gateway process before the real store, with an installation of its own (database, users, job keys).

`running_gateway(store, home)` starts one; `GatewayUnderTest.client(...)` makes boto3 clients for its callers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from tests.support.databases import database_settings, make_database
from tests.support.forks import ForkedProcess
from tests.support.ports import free_port
from tests.support.processes import start_process
from tests.support.wait import patient
from trainshed_service.clock import SystemClock
from trainshed_service.embedded.store import EmbeddedStore
from trainshed_service.identity import Credentials, IdentityService, job_policy
from trainshed_service.settings import Settings
from trainshed_service.store import Database

REGION = "us-east-1"
ACCOUNT = "123456789012"


class GatewayUnderTest:
    """One gateway process, on the database of `home`. `stop` (or leaving `running_gateway`) ends it."""

    def __init__(self, store: EmbeddedStore, home: Path, **settings: str) -> None:
        self.store = store
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        self.settings = database_settings(home) | settings
        url = Settings.model_validate({"home": home, **self.settings}).resolved_database_url
        make_database(url)
        self.database = Database(url)
        self.identity = IdentityService(home, SystemClock())
        bootstrap = self.database.write_sync(lambda session: self.identity.bootstrap(session, ACCOUNT))
        self.admin = bootstrap.admin
        self.port = free_port()
        self.process: ForkedProcess | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log_path(self) -> Path:
        return self.home / "gateway.log"

    def start(self) -> None:
        store = {name.removeprefix("TRAINSHED_"): value for name, value in self.store.environment().items()}
        own = {"home": self.home, "gateway_port": self.port, "account_id": ACCOUNT, "region": REGION}
        self.process = start_process(
            "trainshed_service.s3.__main__",
            {**own, **store, **self.settings},
            self.log_path,
            f"{self.endpoint}/-/health",
        )

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(patient(20))
            finally:
                if self.process.poll() is None:
                    self.process.kill()
                    self.process.wait()
                self.process = None

    def close(self) -> None:
        self.stop()
        self.database.close()

    def client(self, credentials: Credentials | None = None, service: str = "s3", **config: Any) -> Any:
        """A boto3 client of the admin, or of the given credentials. `config` goes to botocore's Config."""
        who = credentials or self.admin
        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            aws_access_key_id=who.access_key_id,
            aws_secret_access_key=who.secret_access_key,
            aws_session_token=who.session_token,
            region_name=REGION,
            config=Config(**config),
        )

    def job_credentials(
        self,
        attempt_id: str,
        *,
        read: list[tuple[str, str]] | None = None,
        write: list[tuple[str, str]] | None = None,
        lifetime: float = 3600.0,
    ) -> Credentials:
        policy = job_policy(read=read or [], write=write or [])
        return self.database.write_sync(
            lambda session: self.identity.issue_job_key(session, attempt_id, policy, time.time() + lifetime)
        )


@contextmanager
def running_gateway(store: EmbeddedStore, home: Path, **settings: str) -> Iterator[GatewayUnderTest]:
    gateway = GatewayUnderTest(store, home, **settings)
    try:
        gateway.start()
        yield gateway
    finally:
        gateway.close()
