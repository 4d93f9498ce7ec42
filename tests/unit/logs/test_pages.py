"""GetLogEvents: pages forward and backward, bounds of time and size, tokens."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.depth import examples
from tests.unit.logs.batches import NOW_MS, batch, line, read_all
from trainshed_service.clock import ManualClock
from trainshed_service.logs import InvalidToken, LogStore, UnknownStream
from trainshed_service.store import Database

STREAM = "job/algo-1-100"


async def test_without_a_token_the_newest_lines_come_unless_the_head_is_asked_for(store: LogStore) -> None:
    await store.append(batch(line(seq) for seq in range(10)))
    newest = await store.get_events(STREAM, limit=3)
    assert [each.position for each in newest.lines] == [7, 8, 9]
    oldest = await store.get_events(STREAM, limit=3, from_head=True)
    assert [each.position for each in oldest.lines] == [0, 1, 2]


async def test_an_empty_stream_has_both_tokens_and_they_repeat(store: LogStore) -> None:
    page = await store.get_events(STREAM, from_head=True)
    assert page.lines == []
    again = await store.get_events(STREAM, token=page.forward_token)
    assert again.forward_token == page.forward_token
    back = await store.get_events(STREAM, token=page.backward_token)
    assert back.backward_token == page.backward_token


async def test_a_token_from_the_end_goes_on_with_lines_that_come_later(store: LogStore, clock: ManualClock) -> None:
    await store.append(batch([line(0)]))
    page = await store.get_events(STREAM, from_head=True)
    assert (await store.get_events(STREAM, token=page.forward_token)).forward_token == page.forward_token
    clock.advance(11 * 3600)
    await store.append(batch([line(1, "hours later", ms=NOW_MS + 11 * 3600 * 1000)]))
    later = await store.get_events(STREAM, token=page.forward_token)
    assert [each.text for each in later.lines] == ["hours later"]
    back = await store.get_events(STREAM, token=later.backward_token)
    assert [each.text for each in back.lines] == ["line 0"]


async def test_start_is_included_and_end_is_not(store: LogStore) -> None:
    await store.append(batch(line(seq) for seq in range(2_500)))
    page = await store.get_events(STREAM, start_ms=NOW_MS + 990, end_ms=NOW_MS + 1_010, from_head=True)
    assert [each.position for each in page.lines] == list(range(990, 1_010))
    none = await store.get_events(STREAM, start_ms=NOW_MS + 5_000, from_head=True)
    assert none.lines == []


async def test_all_lines_of_one_millisecond_are_found_by_it(store: LogStore) -> None:
    await store.append(batch(line(seq, ms=NOW_MS + seq // 1_500) for seq in range(4_000)))
    page = await store.get_events(STREAM, start_ms=NOW_MS + 1, end_ms=NOW_MS + 2, from_head=True)
    assert [each.position for each in page.lines] == list(range(1_500, 3_000))


async def test_a_start_time_may_go_with_a_token(store: LogStore) -> None:
    """The SageMaker SDK sends the time of the last line that it saw with each token."""
    await store.append(batch(line(seq) for seq in range(10)))
    page = await store.get_events(STREAM, start_ms=NOW_MS + 4, limit=3, from_head=True)
    assert [each.position for each in page.lines] == [4, 5, 6]
    page = await store.get_events(STREAM, start_ms=NOW_MS + 4, token=page.forward_token)
    assert [each.position for each in page.lines] == [7, 8, 9]
    last = await store.get_events(STREAM, start_ms=NOW_MS + 4, token=page.forward_token)
    assert (last.lines, last.forward_token) == ([], page.forward_token)


async def test_a_page_has_at_most_a_mebibyte_but_never_less_than_a_line(store: LogStore) -> None:
    big = "x" * 200_000
    await store.append(batch(line(seq, big) for seq in range(12)))
    page = await store.get_events(STREAM, from_head=True)
    assert [each.position for each in page.lines] == [0, 1, 2, 3, 4]
    page = await store.get_events(STREAM)
    assert [each.position for each in page.lines] == [7, 8, 9, 10, 11]
    assert len(await read_all(store)) == 12


@pytest.mark.parametrize("token", ["", "f/", "f/1/s", "x" * 60, "g/" + "0" * 56 + "/s", "f/" + "9" * 56 + "/s"])
async def test_a_token_that_was_not_given_out_is_refused(store: LogStore, token: str) -> None:
    with pytest.raises(InvalidToken):
        await store.get_events(STREAM, token=token)


async def test_a_token_of_another_stream_is_refused(store: LogStore) -> None:
    page = await store.get_events("job/algo-2-100")
    with pytest.raises(InvalidToken):
        await store.get_events(STREAM, token=page.forward_token)


async def test_an_unknown_stream_is_named(store: LogStore) -> None:
    with pytest.raises(UnknownStream, match="job/algo-7-100"):
        await store.get_events("job/algo-7-100")


@settings(max_examples=examples(8), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(1, 700), min_size=1, max_size=6),
    limit=st.integers(40, 800),
    start=st.integers(0, 900),
)
def test_forward_then_backward_paging_gives_all_lines(
    database: Database, sizes: list[int], limit: int, start: int
) -> None:
    async def scenario() -> None:
        store = LogStore(database, ManualClock())
        await store.delete_job("job")
        await store.ensure_streams("job", [STREAM])
        count = 0
        for size in sizes:
            await store.append(batch(line(count + each) for each in range(size)))
            count += size
        start_ms = NOW_MS + start
        page = await store.get_events(STREAM, from_head=True, limit=limit, start_ms=start_ms)
        seen = [each.position for each in page.lines]
        while page.lines:
            page = await store.get_events(STREAM, token=page.forward_token, limit=limit, start_ms=start_ms)
            seen += [each.position for each in page.lines]
        expected = list(range(min(start, count), count))
        assert seen == expected
        backwards: list[int] = []
        page = await store.get_events(STREAM, token=page.backward_token, limit=limit, start_ms=start_ms)
        while page.lines:
            backwards = [each.position for each in page.lines] + backwards
            page = await store.get_events(STREAM, token=page.backward_token, limit=limit, start_ms=start_ms)
        assert backwards == expected

    asyncio.run(scenario())
