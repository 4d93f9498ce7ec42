"""The real ingest process: who is let in, what a burst leaves, and what a kill in the middle of it leaves."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.integration.logs.conftest import make_streams
from tests.support.service import AGENT_KEY, LocalService, attempt_of
from tests.support.wait import wait_until
from trainshed_service.logs import LogStore
from trainshed_service.metrics import MetricStore
from trainshed_service.store import Database

KEY = {"Authorization": f"Bearer {AGENT_KEY}"}


def batch(
    job: str, first: int, count: int, source: str = "algo-1", attempt: str = "", stream: str = ""
) -> dict[str, Any]:
    now = int(time.time() * 1000)
    lines = [
        {"seq": seq, "timestamp_ms": now, "stream": stream or source, "text": f"{source} says {seq}"}
        for seq in range(first, first + count)
    ]
    return {"job_name": job, "attempt_id": attempt or attempt_of(job), "source": source, "lines": lines}


def post(service: LocalService, body: Any, headers: dict[str, str] | None = None, path: str = "logs") -> httpx.Response:
    return httpx.post(
        f"{service.ingest_url}/ingest/v1/{path}", json=body, headers=KEY if headers is None else headers, timeout=60
    )


def stored(service: LocalService, job: str) -> list[tuple[str, int, str]]:
    """(stream, position, text) of every line, in the order of the streams."""

    async def read(database: Database) -> list[tuple[str, int, str]]:
        lines = [(each.stream, each.line.position, each.line.text) async for each in LogStore(database).download(job)]
        return sorted(lines)

    database = Database(service.settings.resolved_logs_database_url)
    try:
        return asyncio.run(read(database))
    finally:
        database.close()


def test_only_the_agent_of_the_attempt_may_write_and_only_to_its_own_job(service: LocalService, job: str) -> None:
    other = job + "-other"
    make_streams(service, other, service.place_job(other, 1))
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic " + AGENT_KEY}):
        refused = post(service, batch(job, 0, 1), headers)
        assert (refused.status_code, refused.json()["code"]) == (401, "Unauthorized")
    foreign = post(service, batch(other, 0, 1, attempt=attempt_of(job)))
    assert (foreign.status_code, foreign.json()["code"]) == (403, "Forbidden")
    not_held = post(service, batch(job, 0, 1, source="algo-3"))
    assert (not_held.status_code, not_held.json()["code"]) == (403, "Forbidden")
    gone = post(service, batch(job, 0, 1, attempt="nobody"))
    assert (gone.status_code, gone.json()["code"]) == (410, "AttemptGone")
    no_stream = post(service, batch(job, 0, 1, stream="algo-7"))
    assert (no_stream.status_code, no_stream.json()["code"]) == (503, "StreamNotReady")
    assert stored(service, job) == []


def test_bad_bodies_are_refused_in_words(service: LocalService, job: str) -> None:
    bad = httpx.post(f"{service.ingest_url}/ingest/v1/logs", content=b"{", headers=KEY)
    assert (bad.status_code, bad.json()["code"]) == (400, "BadBatch")
    body = batch(job, 0, 1)
    del body["lines"][0]["seq"]
    missing = post(service, body)
    assert missing.status_code == 400
    assert "lines.0.seq" in missing.json()["message"]
    long = httpx.post(f"{service.ingest_url}/ingest/v1/logs", content=b" " * (17 << 20), headers=KEY, timeout=60)
    assert (long.status_code, long.json()["code"]) == (413, "BodyTooLarge")

    def endless() -> Any:
        for _ in range(40):
            yield b" " * (1 << 19)

    chunked = httpx.post(f"{service.ingest_url}/ingest/v1/logs", content=endless(), headers=KEY, timeout=60)
    assert chunked.status_code == 413


def test_an_agent_that_enrolls_again_is_known_by_its_new_key_at_once(service: LocalService, job: str) -> None:
    assert post(service, batch(job, 0, 1)).status_code == 200
    assert post(service, batch(job, 1, 1), {"Authorization": "Bearer another"}).status_code == 401
    service.add_agent("second", "another")
    assert post(service, batch(job, 1, 1), {"Authorization": "Bearer another"}).status_code == 403


def test_a_burst_of_100_000_lines_of_two_hosts_loses_nothing(service: LocalService, job: str) -> None:
    def ship(source: str) -> None:
        with httpx.Client(headers=KEY, timeout=60) as client:
            following = 0
            while following < 50_000:
                answer = client.post(
                    f"{service.ingest_url}/ingest/v1/logs", json=batch(job, following, 500, source, stream="algo-1")
                )
                assert answer.status_code == 200, answer.text
                following = answer.json()["next_seq"]

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(ship, ("algo-1", "algo-2")))
    lines = stored(service, job)
    assert [position for _, position, _ in lines] == list(range(100_000))
    for source in ("algo-1", "algo-2"):
        own = [text for _, _, text in lines if text.startswith(source)]
        assert own == [f"{source} says {seq}" for seq in range(50_000)]


def test_kill_in_the_middle_of_a_burst_loses_and_doubles_nothing(service: LocalService, job: str) -> None:
    """The shipper knows nothing but the last answer; it sends overlapping batches again until all are acknowledged."""
    acknowledged = 0
    total = 8_000
    failures = 0

    def ship() -> None:
        nonlocal acknowledged, failures
        pause = threading.Event()
        while acknowledged < total:
            first = max(0, acknowledged - 37)
            try:
                answer = post(service, batch(job, first, min(400, total - first)))
            except httpx.HTTPError:
                failures += 1
                pause.wait(0.02)
                continue
            assert answer.status_code == 200, answer.text
            assert answer.json()["next_seq"] >= acknowledged
            acknowledged = answer.json()["next_seq"]

    shipper = threading.Thread(target=ship)
    shipper.start()
    for share in (0.3, 0.6):
        wait_until(lambda: acknowledged >= share * total, timeout=120, every=0.002)  # noqa: B023
        before = acknowledged
        service.kill("logs")
        assert len(stored(service, job)) >= before
        service.start("logs")
    shipper.join(timeout=120)
    assert not shipper.is_alive()
    assert failures > 0
    assert [text for _, _, text in stored(service, job)] == [f"algo-1 says {seq}" for seq in range(total)]


def test_the_end_of_the_process_is_clean(service: LocalService, job: str) -> None:
    assert post(service, batch(job, 0, 10)).status_code == 200
    status = service.kill("logs", signal.SIGTERM)
    service.start("logs")
    assert status in (0, -signal.SIGTERM)
    assert len(stored(service, job)) == 10


def test_metric_points_are_stored_once(service: LocalService, job: str) -> None:
    points = [{"name": "loss", "value": 0.5, "timestamp_ms": 1_000, "seq": 3}]
    body = {"job_name": job, "attempt_id": attempt_of(job), "source": "algo-1", "points": points}
    assert post(service, body, path="metrics").status_code == 204
    assert post(service, body, path="metrics").status_code == 204
    assert post(service, body | {"job_name": "other"}, path="metrics").status_code == 403
    database = Database(service.settings.resolved_logs_database_url)
    try:
        (bucket,) = asyncio.run(
            MetricStore(database).statistics(job, "loss", start_ms=0, end_ms=60_000, period_ms=60_000)
        )
        assert bucket.count == 1
    finally:
        database.close()


@pytest.mark.parametrize("path", ["/", "/ingest/v1/other"])
def test_other_paths_are_not_there(service: LocalService, path: str) -> None:
    assert httpx.get(service.ingest_url + path).status_code == 404
