"""A service whose dashboard is looked at: api and ingest as processes, jobs that train, lines that come."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import update
from sqlalchemy.orm import Session

from tests.integration.logs.conftest import make_streams
from tests.support.service import AGENT_KEY, LocalService, attempt_of
from trainshed_service.store.tables import changed, instances, jobs
from trainshed_worker.protocol import AssignmentReport, Phase


class ShownService(LocalService):
    """`place`d jobs train on two hosts that no agent holds: their rows and lines are what a page shows of them. Their
    hosts have said that they run, so that a stop waits for them."""

    def place(self, job: str, hosts: int = 2) -> None:
        names = self.place_job(job, hosts)
        now = time.time()  # or its maximum runtime would be over already
        started = update(jobs).where(jobs.c.name == job).values(created_at=now, training_started_at=now)
        self.control.write_sync(lambda session: changed(session, started))
        self.control.write_sync(lambda session: _say_that_it_runs(session, attempt_of(job)))
        with ThreadPoolExecutor(1) as aside:  # a browser's driver has an event loop in this thread
            aside.submit(make_streams, self, job, names).result()

    def request(self, name: str, hosts: int = 1, **more: Any) -> dict[str, Any]:
        """A job that may run for a day, however slow the machine is."""
        return super().request(name, hosts, **{"StoppingCondition": {"MaxRuntimeInSeconds": 86_400}, **more})

    def ship(self, job: str, source: str, texts: Sequence[str], first: int = 0) -> None:
        """Lines of a host, numbered from `first`."""
        now = int(time.time() * 1000)
        lines = [
            {"seq": seq, "timestamp_ms": now + seq, "stream": source, "text": text}
            for seq, text in enumerate(texts, first)
        ]
        self._ingest("logs", {"lines": lines}, job, source)

    def ship_points(self, job: str, source: str, points: list[dict[str, Any]]) -> None:
        self._ingest("metrics", {"points": points}, job, source)

    def login_link(self) -> str:
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = httpx.post(f"{self.url}/v1/login-links", headers=headers, timeout=30)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["url"])

    def browser(self) -> httpx.Client:
        """A client that keeps cookies and follows nothing by itself."""
        return httpx.Client(base_url=self.url, timeout=30, trust_env=False)

    @contextmanager
    def logged_in(self) -> Iterator[httpx.Client]:
        admin = self.bootstrap.admin
        with self.browser() as client:
            answer = log_in(client, key=admin.access_key_id, secret=admin.secret_access_key)
            assert answer.status_code == 303, answer.text
            yield client

    def _ingest(self, path: str, body: dict[str, Any], job: str, source: str) -> None:
        whole = {"job_name": job, "attempt_id": attempt_of(job), "source": source, **body}
        headers = {"Authorization": f"Bearer {AGENT_KEY}"}
        answer = httpx.post(f"{self.ingest_url}/ingest/v1/{path}", json=whole, headers=headers, timeout=60)
        assert answer.is_success, answer.text


def _say_that_it_runs(session: Session, attempt: str) -> None:
    report = AssignmentReport(id="", attempt_id=attempt, epoch=1, revision=1, phase=Phase.RUNNING)
    said = {"phase": report.phase.value, "revision": report.revision, "report": report.model_dump(mode="json")}
    changed(session, update(instances).where(instances.c.attempt_id == attempt).values(**said))


def csrf_of(page: str) -> str:
    """The token of the last form of a page."""
    found = re.findall(r'name="csrf" value="([^"]+)"', page)
    assert found, page
    return str(found[-1])


def log_in(client: httpx.Client, **fields: str) -> httpx.Response:
    """Get the form, send it."""
    csrf = csrf_of(client.get("/login").text)
    return client.post("/login", data={"csrf": csrf, **fields})


@contextmanager
def shown_service(home: Path) -> Iterator[ShownService]:
    with ShownService(home) as service:
        service.start("logs")
        service.start("api")
        yield service
