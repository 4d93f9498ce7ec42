"""The agent's own shipper against the real ingest: lines arrive, and a quiet host still says that it lives."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from tests.support.service import AGENT_KEY, LocalService, attempt_of
from trainshed_service.logs import LogStore
from trainshed_service.store import Database
from trainshed_worker.logs import LogShipper, Source, shipper


class Access:
    def __init__(self, service: LocalService) -> None:
        self._url = service.ingest_url

    def ingest(self) -> tuple[str, str]:
        return self._url, AGENT_KEY

    def key_refused(self) -> None:
        raise AssertionError("the key is right")


async def test_a_quiet_host_is_heard_of(
    service: LocalService, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipper, "CONTACT_SECONDS", 0.2)
    spool = tmp_path / "lines.jsonl"
    spool.write_text(json.dumps([0, 1_790_000_000_000, "algo-1", "the only line"]) + "\n")
    database = Database(service.settings.resolved_logs_database_url)
    store = LogStore(database)
    async with httpx.AsyncClient() as http:
        ships = LogShipper(Source(job, attempt_of(job), "algo-1"), spool, tmp_path / "state", Access(service), http)
        task = asyncio.create_task(ships.run())
        try:
            async with asyncio.timeout(60):
                await ships.drained()
                (first,) = await store.sources(job)
                heard = first.last_contact_ms
                while heard == first.last_contact_ms:
                    await asyncio.sleep(0.05)
                    ((heard, lines),) = [(each.last_contact_ms, each.lines) for each in await store.sources(job)]
            assert heard > first.last_contact_ms
            assert lines == 1
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            database.close()
