"""Places in the log of several hosts, and finding lines in it: beside the plain way, over everything."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.logs.batches import NOW_MS, batch, line
from tests.unit.logs.conftest import STREAMS
from trainshed_service.logs import InvalidPattern, LogStore, Range, chunks
from trainshed_service.logs.finding import by_error, by_regex, by_text

HOSTS = ("algo-1", "algo-2")


async def ship(store: LogStore, host: str, times: list[int], first: int = 0) -> None:
    lines = [line(first + n, f"{host} {first + n}", stream=host, ms=NOW_MS + ms) for n, ms in enumerate(times)]
    await store.append(batch(lines, source=host))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(0, 12), max_size=40).map(sorted),
    st.lists(st.integers(0, 12), min_size=1, max_size=40).map(sorted),
    st.integers(0, 90),
    st.integers(1, 20),
)
async def test_a_window_is_what_the_merged_log_has_there(
    store: LogStore, monkeypatch: pytest.MonkeyPatch, one: list[int], two: list[int], offset: int, limit: int
) -> None:
    monkeypatch.setattr(chunks, "MAX_LINES", 4)
    await store.delete_job("job")
    await store.ensure_streams("job", STREAMS)
    await ship(store, "algo-1", one)
    await ship(store, "algo-2", two)
    every = [each async for each in store.download("job")]
    found = await store.window("job", Range(), offset, limit)
    assert found.counts == {host: len(times) for host, times in zip(HOSTS, (one, two), strict=True) if times}
    assert [(each.stream, each.position) for each in found.lines] == [
        (each.stream, each.line.position) for each in every[offset : offset + limit]
    ]
    assert [each.index for each in found.lines] == list(range(offset, offset + len(found.lines)))
    for index, each in enumerate(every):
        at = f"{each.stream.rpartition('/')[2]}:{each.line.position + 1}"
        assert (await store.window("job", Range(), 0, 1, at)).at == index


async def test_a_range_keeps_its_lines_and_their_places_whatever_comes(store: LogStore) -> None:
    await ship(store, "algo-1", [10, 20, 30])
    before = await store.window("job", Range(), 0, 10)
    await ship(store, "algo-2", [1, 15])  # late lines, with times before those that were there
    again = await store.window("job", Range(None, before.end), 0, 10)
    assert again == before and [each.text for each in before.lines] == ["algo-1 0", "algo-1 1", "algo-1 2"]
    fresh = await store.window("job", Range(before.end), 0, 10)
    assert [each.text for each in fresh.lines] == ["algo-2 0", "algo-2 1"] and fresh.counts == {"algo-2": 2}
    alone = await store.window("job", Range(hosts=["algo-2"]), 1, 10)
    assert [(each.index, each.text) for each in alone.lines] == [(1, "algo-2 1")]
    for absent in ("algo-1-100:4", "algo-3-100:1", "algo-1-100:0", "nonsense"):
        assert (await store.window("job", Range(), 0, 1, absent)).at is None


async def test_matches_come_with_lines_around_them_and_in_steps(store: LogStore) -> None:
    texts = [f"step {n}" for n in range(50)]
    texts[7], texts[30], texts[49] = "\x1b[31mValueError\x1b[0m: x", "Step THIRTY", "killed"
    await store.append(batch([line(n, text) for n, text in enumerate(texts)]))
    found = await store.find("job", Range(), by_text("thirty"), 0, 10, 2)
    assert [each.index for each in found.lines] == [28, 29, 30, 31, 32] and found.matching == [30]
    assert found.after is None
    first = await store.find("job", Range(), by_error, 0, 1, 1)
    assert (first.matching, [each.index for each in first.lines], first.after) == ([7], [6, 7, 8], 8)
    second = await store.find("job", Range(), by_error, 8, 5, 0)
    assert (second.matching, second.after) == ([49], None)
    seen: list[int] = []
    after: int | None = 0
    while after is not None:
        step = await store.find("job", Range(), by_regex(r"^step \d*5$"), after, 2, 0)
        seen, after = seen + step.matching, step.after
    assert seen == [5, 15, 25, 35, 45]
    assert (await store.find("job", Range(), by_regex("(?-i:step thirty)"), 0, 5, 0)).matching == []


async def test_expressions_that_are_wrong_or_too_slow_are_refused_in_words(store: LogStore) -> None:
    with pytest.raises(InvalidPattern, match="no regular expression"):
        by_regex("(")
    await store.append(batch([line(0, "a" * 40 + "!")]))
    with pytest.raises(InvalidPattern, match="takes too long"):
        await store.find("job", Range(), by_regex(r"^(?:a|aa|a+)*(?:a|a?)*\d$"), 0, 5, 0)
