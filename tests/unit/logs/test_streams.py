"""Streams are made once and listed as CloudWatch lists them."""

from __future__ import annotations

import pytest

from tests.unit.logs.batches import NOW_MS, batch, line
from trainshed_service.logs import InvalidToken, LogStore
from trainshed_service.store import Database


async def names_of(store: LogStore, **options: object) -> list[str]:
    streams, token = await store.describe_streams(**options)  # type: ignore[arg-type]
    assert token is None
    return [stream.name for stream in streams]


async def test_making_streams_twice_gives_one_of_each(store: LogStore, database: Database) -> None:
    await LogStore(database).ensure_streams("job", ["job/algo-1-100", "job/algo-3-100"])
    assert await names_of(store, prefix="job/") == ["job/algo-1-100", "job/algo-2-100", "job/algo-3-100"]


@pytest.mark.parametrize("name", ["other/algo-1-1", "job/algo-1", "job/worker-1-1", "job/algo-1-1/x"])
async def test_a_name_of_another_form_is_refused(store: LogStore, name: str) -> None:
    with pytest.raises(ValueError, match="not a stream name"):
        await store.ensure_streams("job", [name])


async def test_a_prefix_counts_letter_case_and_no_wildcard(store: LogStore) -> None:
    await store.ensure_streams("job-2", ["job-2/algo-1-100"])
    await store.ensure_streams("jobb", ["jobb/algo-1-100"])
    await store.ensure_streams("JOB", ["JOB/algo-1-100"])
    assert await names_of(store, prefix="job/") == ["job/algo-1-100", "job/algo-2-100"]
    assert await names_of(store, prefix="job-") == ["job-2/algo-1-100"]
    assert await names_of(store, prefix="job") == [
        "job-2/algo-1-100",
        "job/algo-1-100",
        "job/algo-2-100",
        "jobb/algo-1-100",
    ]
    assert await names_of(store, prefix="jo_") == []
    assert await names_of(store, prefix="%") == []


async def test_all_streams_of_a_job_come_at_once_without_a_token(store: LogStore) -> None:
    """The SDK asks again for ever, without the token, while there is one."""
    await store.ensure_streams("big", [f"big/algo-{rank}-1" for rank in range(1, 81)])
    streams, token = await store.describe_streams(prefix="big/", limit=50)
    assert (len(streams), token) == (80, None)


@pytest.mark.parametrize("by_time", [False, True])
@pytest.mark.parametrize("descending", [False, True])
async def test_pages_give_every_stream_once(store: LogStore, by_time: bool, descending: bool) -> None:
    await store.ensure_streams("many", [f"many/algo-{rank}-1" for rank in range(1, 24)])
    for rank in (3, 7, 9):
        await store.append(batch([line(0, stream=f"algo-{rank}", ms=NOW_MS + rank)], source=f"algo-{rank}", job="many"))
    seen: list[str] = []
    token = None
    while True:
        page, token = await store.describe_streams(by_time=by_time, descending=descending, limit=5, token=token)
        seen += [stream.name for stream in page]
        if token is None:
            break
    assert len(seen) == len(set(seen)) == 25
    if by_time:
        busy = ["many/algo-3-1", "many/algo-7-1", "many/algo-9-1"]
        assert (seen[:3] if descending else seen[-3:]) == (busy[::-1] if descending else busy)
    else:
        assert seen == sorted(seen, reverse=descending)


async def test_no_token_when_the_last_page_is_just_full(store: LogStore) -> None:
    streams, token = await store.describe_streams(prefix="job", limit=2)
    assert (len(streams), token) == (2, None)


@pytest.mark.parametrize("token", ["x", "bm90IGpzb24=", "WyJ0ZCIsICJ4IiwgMV0=", "W10=", "e30="])
async def test_a_token_that_was_not_given_out_is_refused(store: LogStore, token: str) -> None:
    with pytest.raises(InvalidToken):
        await store.describe_streams(token=token)


async def test_times_of_a_stream_are_those_of_its_lines(store: LogStore) -> None:
    await store.append(batch([line(0), line(5), line(1)]))
    (stream, empty), _ = await store.describe_streams(prefix="job/")
    assert (stream.first_ms, stream.last_ms, stream.last_ingest_ms) == (NOW_MS, NOW_MS + 1, NOW_MS)
    assert (empty.first_ms, empty.last_ms) == (None, None)


async def test_a_deleted_job_leaves_nothing_and_its_name_can_be_used_again(store: LogStore) -> None:
    await store.ensure_streams("other", ["other/algo-1-1"])
    await store.append(batch([line(0)]))
    await store.delete_job("job")
    assert await names_of(store) == ["other/algo-1-1"]
    assert await store.sources("job") == []
    await store.ensure_streams("job", ["job/algo-1-100"])
    assert (await store.get_events("job/algo-1-100")).lines == []
    assert await store.append(batch([line(0)])) == 1
