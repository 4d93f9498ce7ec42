"""Metrics from lines, reading a spool that grows, shipping with acknowledgements."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from trainshed_worker.logs import LogShipper, Source, last_lines
from trainshed_worker.logs.metrics import Definition, definitions, notices, scan
from trainshed_worker.logs.tail import offset_of, read_batch
from trainshed_worker.protocol import LogLine


def lines(*texts: str) -> list[LogLine]:
    return [LogLine(seq=n, timestamp_ms=n, stream="algo-1", text=text) for n, text in enumerate(texts)]


def defined(pattern: str, name: str = "loss") -> list[Definition]:
    return definitions({"AlgorithmSpecification": {"MetricDefinitions": [{"Name": name, "Regex": pattern}]}})


def test_only_finite_numbers_count_and_the_rest_is_reported() -> None:
    known = defined(r"loss=(\S+);")
    points = scan(known, lines("loss=1e-3;", "loss=nan;", "loss=dog;", "loss=-inf;", "none", "loss=1_0;"))
    assert [(point.value, point.seq) for point in points] == [(0.001, 0)]
    assert notices(known) == ["metric 'loss': regex matched 5, parsed 1"]


def test_a_hostile_pattern_is_switched_off() -> None:
    known = defined(r"(a+)+$")
    scan(known, lines(*["a" * 5000 + "b"] * 6))
    assert known[0].disabled is not None
    assert "switched off" in notices(known)[0]


def test_a_bad_pattern_is_said() -> None:
    assert "not valid" in notices(defined("("))[0]


def spool_of(path: Path, count: int, start: int = 0) -> None:
    with path.open("a") as file:
        for n in range(start, start + count):
            file.write(json.dumps([n, 1000 + n, "algo-1", f"line {n}"]) + "\n")


def test_torn_lines_wait_and_batches_respect_limits(tmp_path: Path) -> None:
    spool = tmp_path / "lines.jsonl"
    assert read_batch(spool, 0, 100, 10).lines == []
    spool_of(spool, 5)
    with spool.open("a") as file:
        file.write('[5,1005,"algo-1","to')
    batch = read_batch(spool, 0, 1_000_000, 3)
    assert [line.seq for line in batch.lines] == [0, 1, 2]
    rest = read_batch(spool, batch.end, 1_000_000, 100)
    assert [line.seq for line in rest.lines] == [3, 4]
    with spool.open("a") as file:
        file.write('rn"]\n')
    assert [line.text for line in read_batch(spool, rest.end, 8, 100).lines] == ["torn"]
    assert read_batch(spool, offset_of(spool, 3), 1_000_000, 1).lines[0].seq == 3
    assert [line.seq for line in last_lines(spool, limit=2)] == [4, 5]


class Ingest:
    """An ingest that forgets acknowledgements, is away at times, and stores each number once."""

    def __init__(self) -> None:
        self.stored: list[str] = []
        self.calls = 0
        self.refused = 0

    def ingest(self) -> tuple[str, str]:
        return "http://ingest", "key"

    def key_refused(self) -> None:
        self.refused += 1

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.calls += 1
        body = json.loads(request.content)
        if self.calls % 5 == 1:
            return httpx.Response(503)
        if self.calls == 4:
            return httpx.Response(401)
        for line in body["lines"]:
            if line["seq"] == len(self.stored):
                self.stored.append(line["text"])
        if self.calls % 5 == 2:
            raise httpx.ReadError("the answer was lost")
        return httpx.Response(200, json={"next_seq": len(self.stored)})


@pytest.mark.parametrize("restart", [False, True])
async def test_every_line_arrives_once_through_losses_and_restarts(tmp_path: Path, restart: bool) -> None:
    ingest = Ingest()
    spool = tmp_path / "lines.jsonl"
    spool_of(spool, 12_000)
    async with httpx.AsyncClient(transport=httpx.MockTransport(ingest.answer)) as http:
        for number in range(3):
            if number == 0 or restart:
                shipper = LogShipper(Source("job", "attempt", "algo-1"), spool, tmp_path / "state", ingest, http)
                if restart and number == 1:
                    (tmp_path / "state" / "shipped.json").unlink()  # a crash before the offset was stored
                    shipper = LogShipper(Source("job", "attempt", "algo-1"), spool, tmp_path / "state", ingest, http)
            task = asyncio.create_task(shipper.run())
            async with asyncio.timeout(30):
                await shipper.drained()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert len(ingest.stored) == 12_000 + number * 100
            spool_of(spool, 100, start=12_000 + number * 100)
    assert ingest.stored == [f"line {n}" for n in range(12_200)]
    assert shipper.acknowledged == 12_200
    assert ingest.refused == 1
