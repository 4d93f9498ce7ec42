"""FilterLogEvents and the merged log of all hosts."""

from __future__ import annotations

import pytest

from tests.unit.logs.batches import NOW_MS, batch, line
from trainshed_service.logs import FoundLine, InvalidPattern, InvalidToken, LogStore, UnknownStream, search
from trainshed_service.logs.pattern import compile_pattern


@pytest.fixture
async def two_hosts(store: LogStore) -> LogStore:
    """algo-1 writes the even milliseconds, algo-2 the odd ones."""
    for host, first in (("algo-1", 0), ("algo-2", 1)):
        lines = [
            line(seq, f"{host} {2 * seq + first}", stream=host, ms=NOW_MS + 2 * seq + first) for seq in range(1_500)
        ]
        await store.append(batch(lines, source=host))
    return store


def times(lines: list[FoundLine]) -> list[int]:
    return [found.line.ms - NOW_MS for found in lines]


async def test_lines_of_all_streams_come_in_order_of_time_over_all_pages(two_hosts: LogStore) -> None:
    seen: list[FoundLine] = []
    token = None
    while True:
        page = await two_hosts.filter_events(prefix="job", limit=700, token=token)
        seen += page.lines
        token = page.token
        if token is None:
            break
    assert times(seen) == list(range(3_000))
    ids = [found.event_id for found in seen]
    assert len(set(ids)) == 3_000
    assert ids == sorted(ids)


async def test_a_time_range_and_stream_names_limit_the_search(two_hosts: LogStore) -> None:
    page = await two_hosts.filter_events(names=["job/algo-2-100"], start_ms=NOW_MS + 10, end_ms=NOW_MS + 20)
    assert times(page.lines) == [11, 13, 15, 17, 19]
    assert {found.stream for found in page.lines} == {"job/algo-2-100"}
    with pytest.raises(UnknownStream):
        await two_hosts.filter_events(names=["job/algo-2-100", "job/none"])


async def test_equal_times_are_neither_repeated_nor_skipped_between_pages(store: LogStore) -> None:
    for host in ("algo-1", "algo-2"):
        await store.append(batch([line(seq, stream=host, ms=NOW_MS) for seq in range(10)], source=host))
    seen = []
    token = None
    while True:
        page = await store.filter_events(limit=3, token=token)
        seen += [(found.stream, found.line.position) for found in page.lines]
        token = page.token
        if token is None:
            break
    assert len(seen) == len(set(seen)) == 20


async def test_only_matching_lines_come_and_a_page_without_a_match_can_have_a_token(
    two_hosts: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MAX_SCAN_BYTES", 10_000)
    seen: list[FoundLine] = []
    token = None
    pages = 0
    while True:
        page = await two_hosts.filter_events(pattern='"algo-1 2998"', token=token)
        pages += 1
        seen += page.lines
        token = page.token
        if token is None:
            break
    assert times(seen) == [2_998]
    assert pages > 2


async def test_no_token_when_nothing_is_left(two_hosts: LogStore) -> None:
    assert (await two_hosts.filter_events(limit=3_000)).token is None
    assert (await two_hosts.filter_events(limit=2_999)).token is not None
    assert (await two_hosts.filter_events(start_ms=NOW_MS + 10**9)).token is None
    with pytest.raises(InvalidToken):
        await two_hosts.filter_events(token="nonsense")


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        ("", {0, 1, 2, 3}),
        ("loss", {0, 1, 2}),
        ("loss epoch", {1}),
        ('"loss = 1"', {2}),
        ("?epoch ?other", {1, 3}),
        ("loss ?other", {0, 1, 2}),
        ("-loss", {3}),
        ("loss -epoch", {0, 2}),
        ("Loss", set()),
        ('"say \\"hi\\""', {3}),
    ],
)
def test_patterns(pattern: str, matching: set[int]) -> None:
    lines = ["loss=1", "epoch 2 loss=1", "loss = 1", 'other: say "hi"']
    matches = compile_pattern(pattern)
    assert {place for place, text in enumerate(lines) if matches(text)} == matching


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("{ $.level = 1 }", "JSON"),
        ("[a, b]", "space-delimited"),
        ("%err.*%", "regular expressions"),
        ('"open', "quote"),
        ("a {b}", "double quotes"),
        ("- a", "empty"),
    ],
)
def test_what_is_not_offered_is_said_in_words(pattern: str, words: str) -> None:
    with pytest.raises(InvalidPattern, match=words):
        compile_pattern(pattern)


async def test_the_tail_gives_each_line_of_all_hosts_once_also_late_ones(two_hosts: LogStore) -> None:
    page = await two_hosts.tail("job", limit=1_000)
    seen = [each.line.ms - NOW_MS for each in page.lines]
    assert seen == list(range(1_000))
    assert not page.at_end
    resumed = await two_hosts.tail("job", page.lines[499].cursor, limit=2)
    assert [each.line.ms - NOW_MS for each in resumed.lines] == [500, 501]
    while not page.at_end:
        page = await two_hosts.tail("job", page.cursor, limit=1_000)
        seen += [each.line.ms - NOW_MS for each in page.lines]
    assert seen == list(range(3_000))
    await two_hosts.ensure_streams("job", ["job/algo-3-100"])
    await two_hosts.append(batch([line(0, "late", stream="algo-3", ms=NOW_MS)], source="algo-3"))
    late = await two_hosts.tail("job", page.cursor)
    assert [each.line.text for each in late.lines] == ["late"]
    assert (await two_hosts.tail("job", late.cursor)).lines == []


async def test_a_cursor_of_a_deleted_job_is_refused(two_hosts: LogStore) -> None:
    page = await two_hosts.tail("job", limit=1)
    await two_hosts.delete_job("job")
    await two_hosts.ensure_streams("job", ["job/algo-1-200"])
    with pytest.raises(InvalidToken, match="deleted"):
        await two_hosts.tail("job", page.cursor)
    with pytest.raises(InvalidToken):
        await two_hosts.tail("job", "nonsense")


async def test_a_download_is_the_whole_log_of_the_hosts_asked_for(two_hosts: LogStore) -> None:
    texts = [each.line.text async for each in two_hosts.download("job", hosts=["algo-2"])]
    assert texts == [f"algo-2 {2 * seq + 1}" for seq in range(1_500)]
    assert len([each async for each in two_hosts.download("job")]) == 3_000
