"""Adding, listing and removing: who may, what is refused, what is stored."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from tests.unit.notifications.conftest import Office
from trainshed_service.identity import Principal
from trainshed_service.notifications.kinds import KINDS, check_kinds
from trainshed_service.notifications.progress import pause_after
from trainshed_service.notifications.targets import MAX_TARGETS
from trainshed_service.store.tables import notification_targets
from trainshed_service.wire.errors import ApiError


async def test_the_url_is_sealed_and_bound_to_its_target(office: Office) -> None:
    await office.add("user:pa55word@hook.example")
    row = office.database.read_sync(lambda session: session.execute(select(notification_targets)).one())
    assert b"pa55word" not in row.url_sealed and b"hook" not in row.url_sealed
    assert row.shown_url == "https://***@hook.example/***"


async def test_users_reach_their_own_and_administrators_all(office: Office) -> None:
    anna, ben = office.user("anna"), office.user("ben")
    of_anna = await office.add("anna.example", anna)
    await office.add("everybody.example")
    await office.add("ben.example", user="ben")
    await office.add("admin.example", mine=True)
    assert [each["user"] for each in await office.service.list(office.admin)] == ["anna", None, "ben", "admin"]
    assert [each["url"] for each in await office.service.list(ben)] == ["https://ben.example/***"]
    for forbidden in (office.service.remove(ben, of_anna), office.service.test(ben, of_anna)):
        with pytest.raises(ApiError, match="no notification target"):
            await forbidden
    with pytest.raises(ApiError, match="may not add notification targets of others"):
        await office.add("x.example", ben, user="anna")
    with pytest.raises(ApiError, match="cannot be found"):
        await office.add("x.example", user="nobody")
    job = Principal("job", "a1", "123456789012", "arn:aws:sts::123456789012:assumed-role/trainshed-job/a1")
    with pytest.raises(ApiError, match="may not use notification targets"):
        await office.service.list(job)
    await office.service.remove(anna, of_anna)
    assert await office.service.list(anna) == []


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("hook.example/x", "a webhook"),
        ("https://", "not a URL"),
        ("https://a.example/ x", "without spaces"),
        ("https://a.example/\n", "without spaces"),
        ("https://" + "a" * 3000, "at most 2048"),
    ],
)
async def test_bad_urls_are_refused_without_being_repeated(office: Office, url: str, words: str) -> None:
    with pytest.raises(ApiError, match=words) as caught:
        await office.service.add(office.admin, url, [])
    assert url not in caught.value.message or url == "https://"


async def test_an_ordinary_users_webhook_inside_the_network_is_refused_at_once(office: Office) -> None:
    with pytest.raises(ApiError, match="not at a public address"):
        await office.service.add(office.user("anna"), "http://127.0.0.1:8080/x", [])
    made = await office.service.add(office.admin, "http://127.0.0.1:8080/x", [])
    assert made["url"] == "http://127.0.0.1:8080/***"


async def test_there_are_not_too_many(office: Office) -> None:
    for index in range(MAX_TARGETS):
        await office.add(f"h{index}.example")
    with pytest.raises(ApiError, match="at most"):
        await office.add("more.example")
    await office.add("mine.example", mine=True)


async def test_a_test_says_whether_it_arrived_and_ends_a_pause(office: Office) -> None:
    target = await office.add("hook.example")
    office.channels.down = {"hook.example"}
    assert await office.service.test(office.admin, target) == {"id": target, "delivered": False, "error": "it is down"}
    office.channels.down = set()
    assert (await office.service.test(office.admin, target))["delivered"] is True
    assert office.channels.of("hook.example") == ["Trainshed: a test"]


def test_kinds() -> None:
    assert check_kinds([]) == []
    assert check_kinds(["pool", "job.failed", "pool.ended"]) == [
        "job.failed",
        "pool.available",
        "pool.expiring",
        "pool.ended",
    ]
    assert check_kinds(["job.ended", "pool"]) == list(KINDS)
    with pytest.raises(ApiError, match="no such kind"):
        check_kinds(["node.lost"])


def test_pauses_double_up_to_ten_minutes() -> None:
    assert [pause_after(each) for each in (1, 2, 3, 9, 10, 1000)] == [2, 4, 8, 512, 600, 600]
