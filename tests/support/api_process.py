"""A real API process over a home of its own, without the other processes: started, killed and started again."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import boto3
import httpx
from botocore.config import Config
from sqlalchemy import select
from sqlalchemy.orm import Session

from tests.support.databases import database_settings, make_database
from tests.support.forks import ForkedProcess
from tests.support.ports import free_port
from tests.support.processes import start_process
from tests.support.wait import patient
from trainshed_service.clock import SystemClock
from trainshed_service.identity import Bootstrap, IdentityService
from trainshed_service.identity.users import ADMIN
from trainshed_service.settings import Settings
from trainshed_service.store import Database
from trainshed_service.store.tables import users


class ApiProcess:
    """`settings` are further TRAINSHED_* variables, named as the fields of `Settings`; `name` is that of its log."""

    def __init__(self, home: Path, *, name: str = "api", **settings: Any) -> None:
        self.home = home
        self._log = home / f"{name}.log"
        home.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self._values = {"home": str(home), "port": self.port, "gateway_port": 9, "ingest_port": 9}
        self._values |= database_settings(home) | settings
        self.settings = Settings.model_validate(self._values)
        self.bootstrap, self.token = self._prepare()
        self.process: ForkedProcess | None = None
        self._clients: dict[str, Any] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.process = start_process("trainshed_service.api", self._values, self._log, f"{self.url}/healthz")

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        return self._end(signal.SIGTERM)

    def log(self) -> str:
        return self._log.read_text()

    def client(self, service: str = "sagemaker") -> Any:
        if service not in self._clients:
            self._clients[service] = self.new_client(service)
        return self._clients[service]

    def rest(self, path: str) -> Any:
        """What GET of this path answers an administrator, as JSON."""
        answer = httpx.get(self.url + path, headers={"Authorization": f"Bearer {self.token}"}, timeout=30)
        answer.raise_for_status()
        return answer.json()

    def call(self, method: str, path: str, body: Any = None, *, token: str | None = None) -> httpx.Response:
        """Any REST call, as an administrator or with the token of somebody else."""
        headers = {"Authorization": f"Bearer {token or self.token}"}
        return httpx.request(method, self.url + path, json=body, headers=headers, timeout=60)

    def new_client(self, service: str = "sagemaker") -> Any:
        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id=self.bootstrap.admin.access_key_id,
            aws_secret_access_key=self.bootstrap.admin.secret_access_key,
            config=Config(retries={"total_max_attempts": 1}, read_timeout=30),
        )

    def _prepare(self) -> tuple[Bootstrap, str]:
        make_database(self.settings.resolved_database_url)
        make_database(self.settings.resolved_logs_database_url)
        database = Database(self.settings.resolved_database_url)
        try:
            identity = IdentityService(self.home, SystemClock())
            return database.write_sync(lambda session: _bootstrap(identity, session))
        finally:
            database.close()

    def _end(self, number: int) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        process.send_signal(number)  # nothing where it has ended by itself
        return process.wait(timeout=patient(30))


def _bootstrap(identity: IdentityService, session: Session) -> tuple[Bootstrap, str]:
    """The installation, and a bearer token of its administrator."""
    made = identity.bootstrap(session, "123456789012")
    admin = session.scalars(select(users.c.id).where(users.c.name == ADMIN)).one()
    return made, identity.create_bearer_token(session, admin, "test")
