"""A service of its own for the tests of this folder: api and ingest as processes, one job on two hosts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.integration.logs.conftest import make_streams
from tests.support.service import AGENT_KEY, LocalService, attempt_of


@dataclass
class Rest:
    """`http` carries the bearer token."""

    service: LocalService
    http: httpx.Client

    def ship(self, job: str, source: str, texts: list[str], first: int = 0, ms: int | None = None) -> None:
        now = int(time.time() * 1000) if ms is None else ms
        lines = [
            {"seq": seq, "timestamp_ms": now + seq, "stream": source, "text": text}
            for seq, text in enumerate(texts, first)
        ]
        self._post("logs", {"lines": lines}, job, source)

    def ship_points(self, job: str, source: str, points: list[dict[str, Any]]) -> None:
        self._post("metrics", {"points": points}, job, source)

    def _post(self, path: str, body: dict[str, Any], job: str, source: str) -> None:
        whole = {"job_name": job, "attempt_id": attempt_of(job), "source": source, **body}
        headers = {"Authorization": f"Bearer {AGENT_KEY}"}
        answer = httpx.post(f"{self.service.ingest_url}/ingest/v1/{path}", json=whole, headers=headers, timeout=60)
        assert answer.is_success, answer.text

    def place(self, job: str, hosts: int = 2) -> list[str]:
        names = self.service.place_job(job, hosts)
        make_streams(self.service, job, names)
        return names


@pytest.fixture(scope="package")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    with LocalService(tmp_path_factory.mktemp("a home")) as service:
        service.start("logs")
        service.start("api")
        headers = {"Authorization": f"Bearer {service.token}"}
        with httpx.Client(base_url=service.url, headers=headers, timeout=60) as http:
            yield Rest(service, http)
