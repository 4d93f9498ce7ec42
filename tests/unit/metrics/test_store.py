"""Points are stored once, summed up by period, listed, and the last of each is found."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed_service.metrics import MetricKey, MetricStore, UnknownStatistic, percentile_rank
from trainshed_service.metrics.statistics import buckets_of, percentile
from trainshed_service.store import Database
from trainshed_service.store.models import Base, MetricSample
from trainshed_worker.protocol import MetricBatch, MetricPoint


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MetricStore]:
    database = Database(f"sqlite:///{tmp_path / 'logs.sqlite3'}")
    Base.metadata.create_all(database.engine, tables=[MetricSample.__table__])
    yield MetricStore(database)
    database.close()


def point(name: str, value: float, ms: int, *, seq: int | None = None, host: str | None = None) -> MetricPoint:
    return MetricPoint(name=name, value=value, timestamp_ms=ms, seq=seq, host=host)


def batch(*points: MetricPoint, job: str = "job", attempt: str = "a1", source: str = "algo-1") -> MetricBatch:
    return MetricBatch(job_name=job, attempt_id=attempt, source=source, points=list(points))


async def test_a_batch_sent_twice_counts_once(store: MetricStore) -> None:
    sent = batch(point("loss", 2.0, 1_000, seq=1), point("loss", 4.0, 1_000, seq=2))
    await store.append(sent)
    await store.append(sent)
    (bucket,) = await store.statistics("job", "loss", start_ms=0, end_ms=60_000, period_ms=60_000)
    assert (bucket.count, bucket.total, bucket.minimum, bucket.maximum) == (2, 6.0, 2.0, 4.0)
    assert bucket.value("Average") == 3.0


async def test_equal_line_numbers_of_two_hosts_or_attempts_are_different_points(store: MetricStore) -> None:
    for attempt, source in (("a1", "algo-1"), ("a1", "algo-2"), ("a2", "algo-1")):
        await store.append(batch(point("loss", 1.0, 1_000, seq=7), attempt=attempt, source=source))
    (bucket,) = await store.statistics("job", "loss", start_ms=0, end_ms=60_000, period_ms=60_000)
    assert bucket.count == 3


async def test_the_final_value_is_the_last_numeric_one_also_within_a_millisecond(store: MetricStore) -> None:
    await store.append(
        batch(
            point("loss", 0.5, 5_000, seq=10),
            point("loss", 0.25, 5_000, seq=11),
            point("loss", math.nan, 5_000, seq=12),
            point("loss", math.inf, 5_001, seq=13),
            point("accuracy", 0.9, 4_000, seq=3),
            point("CPUUtilization", 50.0, 9_000, host="algo-1"),
        )
    )
    finals = await store.final("job")
    assert [(each.name, each.value, each.at) for each in finals] == [("accuracy", 0.9, 4.0), ("loss", 0.25, 5.0)]
    assert await store.final("other") == []


async def test_buckets_start_at_the_range_and_hold_what_lies_in_it(store: MetricStore) -> None:
    await store.append(batch(*(point("loss", float(second), second * 1_000, seq=second) for second in range(300))))
    buckets = await store.statistics("job", "loss", start_ms=30_000, end_ms=240_000, period_ms=60_000)
    assert [(bucket.start_ms, bucket.count) for bucket in buckets] == [
        (30_000, 60),
        (90_000, 60),
        (150_000, 60),
        (210_000, 30),
    ]


async def test_metrics_are_listed_by_key_and_page(store: MetricStore) -> None:
    for job in ("a", "b"):
        await store.append(batch(*(point("loss", 1.0, ms, seq=ms) for ms in range(50)), job=job))
        await store.append(batch(point("CPUUtilization", 1.0, 99, host="algo-1"), job=job))
    keys = [
        MetricKey("a", "CPUUtilization", "algo-1"),
        MetricKey("a", "loss", None),
        MetricKey("b", "CPUUtilization", "algo-1"),
        MetricKey("b", "loss", None),
    ]
    assert await store.list() == keys
    assert await store.list(limit=3) == keys[:3]
    assert await store.list(after=keys[0], limit=2) == keys[1:3]
    assert await store.list(job_name="b") == keys[2:]
    assert await store.list(name="loss") == [keys[1], keys[3]]
    assert await store.list(host="") == [keys[1], keys[3]]
    assert await store.list(of_hosts=True) == [keys[0], keys[2]]
    assert await store.list(since_ms=60) == [keys[0], keys[2]]
    await store.delete_job("a")
    assert await store.list() == keys[2:]


@given(st.lists(st.tuples(st.integers(1_000, 50_000), st.floats(-1e6, 1e6)), min_size=1, max_size=60))
def test_buckets_lose_and_invent_nothing(points: list[tuple[int, float]]) -> None:
    buckets = buckets_of(points, 1_000, 7_000, ["p0", "p50", "p100"])
    assert sum(bucket.count for bucket in buckets) == len(points)
    assert math.isclose(sum(bucket.total for bucket in buckets), sum(value for _, value in points), abs_tol=1e-3)
    for bucket in buckets:
        inside = [value for ms, value in points if bucket.start_ms <= ms < bucket.start_ms + 7_000]
        assert bucket.count == len(inside) > 0
        assert bucket.value("p0") == bucket.minimum == min(inside)
        assert bucket.value("p100") == bucket.maximum == max(inside)
        assert bucket.minimum <= bucket.value("p50") <= bucket.maximum
    assert [bucket.start_ms for bucket in buckets] == sorted({bucket.start_ms for bucket in buckets})


def test_percentiles() -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0, 5.0], 0.5) == 3.0
    assert percentile([0.0, 10.0], 0.75) == 7.5
    assert percentile_rank("p99.9") == pytest.approx(0.999)
    for name in ("p101", "p", "tm90", "p1e1", "Average"):
        with pytest.raises(UnknownStatistic):
            percentile_rank(name)
