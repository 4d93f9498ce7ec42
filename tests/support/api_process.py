"""A real API process over a home of its own, without the other processes: started, killed and started again."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import boto3
import httpx
from botocore.config import Config

from tests.support.ports import free_port
from tests.support.stack import plain_environment
from tests.support.wait import wait_until
from trainshed_service.clock import SystemClock
from trainshed_service.identity import Bootstrap, IdentityService
from trainshed_service.settings import Settings
from trainshed_service.store import Database, migrate


class ApiProcess:
    """`settings` are further TRAINSHED_* variables, named as the fields of `Settings`."""

    def __init__(self, home: Path, **settings: Any) -> None:
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        values = {"home": str(home), "port": self.port, "gateway_port": 9, "ingest_port": 9, **settings}
        self.environment = {
            **plain_environment(),
            **{f"TRAINSHED_{name.upper()}": str(value) for name, value in values.items()},
        }
        self.settings = Settings.model_validate(values)
        self.bootstrap = self._prepare()
        self.process: subprocess.Popen[bytes] | None = None
        self._clients: dict[str, Any] = {}
        self._http = httpx.Client(trust_env=False, timeout=5, verify=False)  # plain HTTP; loading CAs takes long

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        log = open(self.home / "api.log", "ab")  # noqa: SIM115 - the process owns it
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trainshed_service.api"], env=self.environment, stdout=log, stderr=log
        )
        log.close()
        wait_until(self._answers, timeout=60, what=f"{self.url} answers; its log: {self.home / 'api.log'}")

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        return self._end(signal.SIGTERM)

    def log(self) -> str:
        return (self.home / "api.log").read_text()

    def client(self, service: str = "sagemaker") -> Any:
        if service not in self._clients:
            self._clients[service] = self._new_client(service)
        return self._clients[service]

    def _new_client(self, service: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id=self.bootstrap.admin.access_key_id,
            aws_secret_access_key=self.bootstrap.admin.secret_access_key,
            config=Config(retries={"total_max_attempts": 1}, read_timeout=30),
        )

    def _prepare(self) -> Bootstrap:
        migrate(self.settings.resolved_database_url)
        migrate(self.settings.resolved_logs_database_url)
        database = Database(self.settings.resolved_database_url)
        try:
            identity = IdentityService(self.home, SystemClock())
            return database.write_sync(lambda session: identity.bootstrap(session, "123456789012"))
        finally:
            database.close()

    def _answers(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"the api ended with {self.process.returncode}:\n{self.log()[-8000:]}")
        try:
            return self._http.get(f"{self.url}/healthz").status_code == 200
        except httpx.TransportError:
            return False

    def _end(self, number: int) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        process.send_signal(number)  # nothing where it has ended by itself
        return process.wait(timeout=30)
