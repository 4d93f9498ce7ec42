"""A line is stored exactly once and in order, whatever the agent sends again."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.depth import examples
from tests.unit.logs.batches import NOW_MS, batch, line, read_all
from trainshed_service.clock import ManualClock
from trainshed_service.logs import LogStore, UnknownStream, chunks
from trainshed_service.store import Database
from trainshed_service.store.models import LogChunk


async def test_a_batch_sent_twice_is_stored_once(store: LogStore) -> None:
    lines = [line(seq) for seq in range(5)]
    assert await store.append(batch(lines)) == 5
    assert await store.append(batch(lines)) == 5
    assert [each.text for each in await read_all(store)] == [f"line {seq}" for seq in range(5)]


async def test_lines_beyond_a_gap_are_not_stored_and_the_answer_says_where_to_go_on(store: LogStore) -> None:
    assert await store.append(batch([line(0), line(1), line(3)])) == 2
    assert await store.append(batch([line(7)])) == 2
    assert await store.append(batch([line(2), line(3)])) == 4
    assert [each.text for each in await read_all(store)] == ["line 0", "line 1", "line 2", "line 3"]


async def test_an_empty_batch_is_a_sign_of_life(store: LogStore, clock: ManualClock) -> None:
    await store.append(batch([line(0)]))
    clock.advance(60)
    assert await store.append(batch([])) == 1
    (source,) = await store.sources("job")
    assert source.last_contact_ms == NOW_MS + 60_000
    assert source.lines == 1


async def test_several_hosts_write_to_one_stream_and_each_line_has_its_own_position(store: LogStore) -> None:
    await store.append(batch([line(0, "a0"), line(1, "a1")], source="algo-1"))
    await store.append(batch([line(0, "b0"), line(1, "own", stream="algo-2")], source="algo-2"))
    await store.append(batch([line(2, "a2")], source="algo-1"))
    lines = await read_all(store)
    assert [each.text for each in lines] == ["a0", "a1", "b0", "a2"]
    assert [each.position for each in lines] == [0, 1, 2, 3]
    assert [each.text for each in await read_all(store, "job/algo-2-100")] == ["own"]


async def test_a_new_attempt_counts_its_own_lines(store: LogStore) -> None:
    await store.append(batch([line(0, "first")], attempt="attempt-1"))
    assert await store.append(batch([line(0, "second")], attempt="attempt-2")) == 1
    assert [each.text for each in await read_all(store)] == ["first", "second"]


async def test_times_never_go_back_within_a_stream(store: LogStore) -> None:
    await store.append(batch([line(0, ms=NOW_MS + 50), line(1, ms=NOW_MS + 10), line(2, ms=NOW_MS + 60)]))
    assert [each.ms - NOW_MS for each in await read_all(store)] == [50, 50, 60]


async def test_a_clock_far_ahead_does_not_drag_the_stream_along(store: LogStore) -> None:
    await store.append(batch([line(0, ms=NOW_MS + 10**12)]))
    assert [each.ms for each in await read_all(store)] == [NOW_MS]


async def test_a_host_without_a_stream_stores_nothing(store: LogStore) -> None:
    with pytest.raises(UnknownStream):
        await store.append(batch([line(0), line(1, stream="algo-9")]))
    assert await read_all(store) == []
    assert await store.append(batch([line(0)])) == 1


async def test_lines_of_an_attempt_go_to_its_own_streams_also_when_they_come_late(store: LogStore) -> None:
    await store.ensure_streams("job", ["job/algo-1-200"])
    await store.append(batch([line(0, "new")], attempt="attempt-2"), stream_epoch=200)
    await store.append(batch([line(0, "old")], attempt="attempt-1"), stream_epoch=100)
    await store.append(batch([line(0, "newest")], attempt="attempt-3"))
    assert [each.text for each in await read_all(store, "job/algo-1-200")] == ["new", "newest"]
    assert [each.text for each in await read_all(store, "job/algo-1-100")] == ["old"]
    with pytest.raises(UnknownStream, match="job/algo-1-300"):
        await store.append(batch([line(0)], attempt="attempt-4"), stream_epoch=300)


async def test_a_line_of_256_kib_is_kept_whole_and_a_longer_one_is_cut_with_a_remark(store: LogStore) -> None:
    whole = "ü" * (chunks.MAX_TEXT_BYTES // 2)
    await store.append(batch([line(0, whole), line(1, whole + "x"), line(2, "after")]))
    kept, cut, after = await read_all(store)
    assert kept.text == whole
    assert len(cut.text.encode()) <= chunks.MAX_TEXT_BYTES
    assert cut.text.endswith(f"[cut by the log service: the line has {chunks.MAX_TEXT_BYTES + 1} bytes]")
    assert after.text == "after"


@pytest.mark.parametrize("text", ["", "\n", "a\nb", "\u2028", '"quoted" \\ back', "\x00\x1b[31m", "日本語 🙂"])
async def test_any_text_comes_back_as_it_was(store: LogStore, text: str) -> None:
    await store.append(batch([line(0, text), line(1, "next")]))
    assert [each.text for each in await read_all(store)] == [text, "next"]


async def test_small_batches_share_chunks_and_no_chunk_outgrows_its_bounds(
    store: LogStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "MAX_LINES", 40)
    for seq in range(100):
        await store.append(batch([line(seq)]))
    rows = database.read_sync(lambda session: list(session.query(LogChunk).order_by(LogChunk.first_seq)))
    assert [row.last_seq - row.first_seq + 1 for row in rows] == [40, 40, 20]
    following = 0
    for row in rows:
        assert row.first_seq == following
        following = row.last_seq + 1
        lines = chunks.decode(row.data, row.first_seq)
        assert (lines[0].ms, lines[-1].ms) == (row.first_ms, row.last_ms)
        assert chunks.raw_size(row.data) <= chunks.MAX_BYTES


SENDS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 25), st.booleans(), st.booleans()), min_size=1, max_size=25
)


@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SENDS)
def test_any_split_doubled_overlapping_and_reordered_sending_gives_each_line_once(
    database: Database, sends: list[tuple[int, int, bool, bool]]
) -> None:
    """Each send is a window of the true lines, maybe reversed, maybe with a hole; what is acknowledged is there."""

    async def scenario() -> None:
        store = LogStore(database, ManualClock())
        await store.delete_job("job")
        await store.ensure_streams("job", ["job/algo-1-100"])
        stored = 0
        for start, length, is_reversed, has_hole in sends:
            window = [line(seq) for seq in range(start, start + length)]
            if has_hole and len(window) > 2:
                del window[len(window) // 2]
            present = {each.seq for each in window}
            while stored in present:
                stored += 1
            sent = window[::-1] if is_reversed else window
            assert await store.append(batch(sent + sent[:3])) == stored
        lines = await read_all(store)
        assert [each.text for each in lines] == [f"line {seq}" for seq in range(stored)]
        assert [each.position for each in lines] == list(range(stored))

    asyncio.run(scenario())
