"""Ships an instance's log lines, and the metrics in them, to the ingest: at least once, in order, as they come.

Invariant: an offset is stored only after the ingest has acknowledged every line before it, so a crash sends lines again
(the service stores each number once) and loses none. One shipper per instance.
"""

import asyncio
import json
import logging
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx

from trainshed_worker.logs import metrics
from trainshed_worker.logs.tail import offset_of, read_batch, spool_size
from trainshed_worker.protocol import LogBatch, LogBatchAck, MetricBatch, MetricPoint

MAX_BYTES = 1_000_000
MAX_LINES = 5_000
POLL_SECONDS = 0.05
CONTACT_SECONDS = 10.0
"""A host without new lines says so this often: the service shows for how long it has heard nothing of a host."""
LONGEST_WAIT = 5.0
TIMEOUT = 15.0
_log = logging.getLogger(__name__)


class Access(Protocol):
    """Where the ingest is and with which key, at this moment."""

    def ingest(self) -> tuple[str, str]:
        """(base URL, agent key)."""

    def key_refused(self) -> None:
        """The ingest answered 401: enroll again."""


@dataclass(frozen=True)
class Source:
    """Whose lines they are."""

    job_name: str
    attempt_id: str
    host: str


class LogShipper:
    """Start `run()` as a task; `drained()` waits until all lines up to now are acknowledged."""

    def __init__(
        self,
        source: Source,
        spool: Path,
        state: Path,
        access: Access,
        http: httpx.AsyncClient,
        definitions: Sequence[metrics.Definition] = (),
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._source = source
        self._spool = spool
        self._state = state / "shipped.json"
        self._access = access
        self._http = http
        self.definitions = list(definitions)
        self._on_progress = on_progress
        self._offset, self._next = self._load()
        self._points: asyncio.Queue[MetricPoint] = asyncio.Queue(maxsize=10_000)
        self._moved = asyncio.Condition()
        self.last_contact = time.time()

    @property
    def acknowledged(self) -> int:
        """Lines that the ingest has stored."""
        return self._next

    def add_points(self, points: Sequence[MetricPoint]) -> None:
        """Queue samples; the oldest go first where the ingest has been away for long."""
        for point in points:
            if self._points.full():
                self._points.get_nowait()
            self._points.put_nowait(point)

    def _load(self) -> tuple[int, int]:
        try:
            raw = json.loads(self._state.read_text())
            return int(raw["offset"]), int(raw["next_seq"])
        except (FileNotFoundError, ValueError, KeyError):
            return 0, 0

    def _save(self) -> None:
        # No sync: an older offset after a crash of the machine only sends lines twice.
        self._state.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._state.with_suffix(".new")
        temporary.write_text(json.dumps({"offset": self._offset, "next_seq": self._next}))
        os.replace(temporary, self._state)

    async def run(self) -> None:
        """Ship until cancelled."""
        attempt = 0
        while True:
            try:
                moved = await self._once()
                attempt = 0
            except (httpx.HTTPError, _Retry) as error:
                attempt += 1
                if attempt in (1, 10) or attempt % 100 == 0:
                    _log.warning("log ingest of %s not reachable (try %d): %s", self._source.job_name, attempt, error)
                await asyncio.sleep(min(LONGEST_WAIT, 0.1 * 2 ** min(attempt, 8)) * random.uniform(0.6, 1.2))
                continue
            if not moved:
                await asyncio.sleep(POLL_SECONDS)

    async def drained(self) -> None:
        """Return when every line that is in the spool now is acknowledged."""
        end = spool_size(self._spool)
        async with self._moved:
            await self._moved.wait_for(lambda: self._offset >= end)

    async def _once(self) -> bool:
        await self._ship_points([])
        if spool_size(self._spool) <= self._offset:
            if time.time() - self.last_contact >= CONTACT_SECONDS:
                await self._say_alive()
            return False
        batch = await asyncio.to_thread(read_batch, self._spool, self._offset, MAX_BYTES, MAX_LINES)
        if not batch.lines:
            return False
        before = self._counts()
        points = await asyncio.to_thread(metrics.scan, self.definitions, batch.lines) if self.definitions else []
        try:
            body = LogBatch(
                job_name=self._source.job_name,
                attempt_id=self._source.attempt_id,
                source=self._source.host,
                lines=batch.lines,
            )
            answer = await self._post("/ingest/v1/logs", body.model_dump_json())
            ack = LogBatchAck.model_validate_json(answer.content)
            await self._ship_points(points)
        except BaseException:
            self._restore(before)
            raise
        await self._advance(ack.next_seq, batch.lines[0].seq, batch.lines[-1].seq, batch.end)
        return True

    async def _say_alive(self) -> None:
        source = self._source
        body = LogBatch(job_name=source.job_name, attempt_id=source.attempt_id, source=source.host, lines=[])
        await self._post("/ingest/v1/logs", body.model_dump_json())
        self.last_contact = time.time()

    def _counts(self) -> list[tuple[int, int]]:
        return [(item.matched, item.parsed) for item in self.definitions]

    def _restore(self, counts: list[tuple[int, int]]) -> None:
        """A batch that goes out again must not count its matches twice."""
        for item, (matched, parsed) in zip(self.definitions, counts, strict=True):
            item.matched, item.parsed = matched, parsed

    async def _advance(self, next_seq: int, first: int, last: int, end: int) -> None:
        if next_seq == last + 1:
            offset = end
        elif next_seq > last + 1:
            # Lines were sent before the offset was stored; the ingest has them all.
            offset = await asyncio.to_thread(offset_of, self._spool, next_seq)
        elif first < next_seq:
            offset = await asyncio.to_thread(offset_of, self._spool, next_seq)
        else:
            # The ingest wants lines from before this batch: go back to the first that it lacks.
            offset = await asyncio.to_thread(offset_of, self._spool, next_seq)
            if next_seq == first:
                raise _Retry(f"the ingest acknowledged nothing after line {next_seq}")
        async with self._moved:
            self._offset = offset
            self._next = next_seq
            self.last_contact = time.time()
            self._save()
            self._moved.notify_all()
        self._on_progress(next_seq)

    async def _ship_points(self, points: list[MetricPoint]) -> None:
        samples: list[MetricPoint] = []
        while not self._points.empty() and len(samples) < 1000:
            samples.append(self._points.get_nowait())
        together = points + samples
        if not together:
            return
        body = MetricBatch(
            job_name=self._source.job_name,
            attempt_id=self._source.attempt_id,
            source=self._source.host,
            points=together,
        )
        try:
            await self._post("/ingest/v1/metrics", body.model_dump_json())
        except BaseException:
            self.add_points(samples)
            raise

    async def _post(self, path: str, body: str) -> httpx.Response:
        url, key = self._access.ingest()
        answer = await self._http.post(
            url.rstrip("/") + path,
            content=body,
            headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
            timeout=TIMEOUT,
        )
        if answer.status_code == 401:
            self._access.key_refused()
        if answer.status_code >= 300:
            raise _Retry(f"{path} answered {answer.status_code}: {answer.text[:200]}")
        return answer


class _Retry(Exception):
    """The ingest cannot take it now."""
