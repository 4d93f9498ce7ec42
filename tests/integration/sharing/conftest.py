"""One installation that several people use: api and ingest as processes, an administrator, and users."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from sqlalchemy import select, update

from tests.support.shown_service import ShownService
from trainshed_service.store.tables import changed, jobs, users

_numbers = itertools.count(1)


@dataclass
class Person:
    """A user with a key (for AWS clients) and a token (for REST)."""

    name: str
    url: str
    key: str
    secret: str = field(repr=False)
    http: httpx.Client = field(repr=False)
    clients: dict[str, Any] = field(default_factory=dict, repr=False)

    def client(self, service: str = "sagemaker") -> Any:
        if service not in self.clients:
            self.clients[service] = boto3.client(
                service,
                endpoint_url=self.url,
                region_name="us-east-1",
                aws_access_key_id=self.key,
                aws_secret_access_key=self.secret,
                config=Config(retries={"total_max_attempts": 1}, max_pool_connections=20),
            )
        return self.clients[service]


class Sharing:
    """`admin` speaks REST as the administrator; `service` starts and ends the processes."""

    def __init__(self, service: ShownService) -> None:
        self.service = service
        self.admin = self._http(service.token)

    def person(self, name: str | None = None, **body: Any) -> Person:
        """A new user, by default one that may pass every role that these tests use."""
        named = name or f"user-{next(_numbers)}"
        made = self.ask("POST", "/v1/users", {"name": named, **body})
        token = self.ask("POST", f"/v1/users/{named}/tokens", {"name": "test"})["token"]
        key = made["accessKey"]
        return Person(named, self.service.url, key["accessKeyId"], key["secretAccessKey"], self._http(token))

    def ask(self, method: str, path: str, body: Any = None, status: int | None = None) -> Any:
        """As the administrator; the JSON of a good answer (or of one with `status`)."""
        answer = self.admin.request(method, path, json=body)
        assert answer.status_code == status if status else answer.is_success, (answer.status_code, answer.text)
        return answer.json()

    def client(self, service: str = "sagemaker") -> Any:
        """Of the administrator."""
        return self.service.client(service)

    def request(self, name: str | None = None, hosts: int = 1, **more: Any) -> dict[str, Any]:
        return self.service.request(name or self.job_name(), hosts, **more)

    @staticmethod
    def job_name() -> str:
        return f"job-{next(_numbers)}"

    def place(self, owner: str, hosts: int = 1) -> str:
        """A job of this user that trains, with one line and one point."""
        name = self.job_name()
        self.service.place(name, hosts)
        arn = f"arn:aws:sagemaker:us-east-1:{self.service.bootstrap.account_id}:training-job/{name}"

        def give(session: Any) -> int:
            user_id = session.scalar(select(users.c.id).where(users.c.name == owner))
            return changed(session, update(jobs).where(jobs.c.name == name).values(user_id=user_id, arn=arn))

        assert self.service.control.write_sync(give) == 1
        self.service.ship(name, "algo-1", [f"a line of {name}"])
        self.service.ship_points(name, "algo-1", [{"name": "loss", "value": 1.5, "timestamp_ms": 1_790_000_000_000}])
        return name

    def _http(self, token: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.service.url, headers=headers, timeout=60, trust_env=False)


def error_of(call: Callable[..., Any], **arguments: Any) -> tuple[str, str]:
    """Code and message of the refusal."""
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    error = caught.value.response["Error"]
    return error["Code"], error["Message"]


@pytest.fixture(scope="package")
def sharing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sharing]:
    with ShownService(tmp_path_factory.mktemp("a shared home")) as service:
        service.start("logs")
        service.start("api")
        yield Sharing(service)


@pytest.fixture(scope="package")
def home_folder(sharing: Sharing) -> Path:
    """The home, with what the commands read of it."""
    return sharing.service.write_home()
