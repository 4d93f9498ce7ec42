"""Order, isolation, retries and giving up, by a clock that stands still until it is told."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest

from tests.support.events import recorded
from tests.support.fake_channels import FakeChannel
from tests.support.wait import wait_until_async
from tests.unit.notifications.conftest import POOL, ROLE, Office

DAY = 86_400.0


async def test_each_target_gets_its_kinds_in_order_and_only_from_when_it_was_made(office: Office) -> None:
    office.happens("job.completed", "early")
    await office.add("all.example")
    await office.add("failures.example", on=["job.failed"])
    office.service.start()
    office.happens("job.completed", "a", status="Completed")
    office.happens("node.free")
    office.happens("job.failed", "b", status="Failed")
    office.happens("pool.available", "b", **POOL, until=office.clock.now() + 60)
    await wait_until_async(lambda: len(office.channels.sent) == 4)
    titles = office.channels.of("all.example")
    assert titles[:2] == ["Trainshed: job a completed", "Trainshed: job b failed"]
    assert titles[2].startswith("Trainshed: 4 × ml.c5.xlarge warm until")
    assert office.channels.of("failures.example") == ["Trainshed: job b failed"]


async def test_a_restart_goes_on_after_the_last_delivery(office: Office) -> None:
    target = await office.add("hook.example")
    office.service.start()
    office.happens("job.completed", "a")
    await wait_until_async(lambda: len(office.channels.sent) == 1)
    await wait_until_async(lambda: _cursor(office, target) > 0)
    await office.service.stop()
    office.happens("job.completed", "b")
    office.service.start()
    await wait_until_async(lambda: len(office.channels.sent) == 2)
    assert office.channels.of("hook.example") == ["Trainshed: job a completed", "Trainshed: job b completed"]


async def test_one_that_hangs_and_one_that_fails_delay_no_other(office: Office) -> None:
    for host in ("hanging.example", "down.example", "live.example"):
        await office.add(host)
    office.channels.hanging = {"hanging.example"}
    office.channels.down = {"down.example"}
    office.service.start()
    for name in ("a", "b", "c"):
        office.happens("job.completed", name)
    await wait_until_async(lambda: len(office.channels.of("live.example")) == 3)
    assert office.channels.tried.count("hanging.example") == 1


async def test_retries_pause_longer_and_longer_and_then_all_arrives_in_order(office: Office) -> None:
    target = await office.add("down.example")
    office.channels.down = {"down.example"}
    office.service.start()
    office.happens("job.completed", "a")
    office.happens("job.completed", "b")
    for failures, pause in enumerate((2, 4, 8, 16), 1):
        await wait_until_async(lambda: len(office.channels.tried) == failures)  # noqa: B023
        state = await office.state(target)
        while state["failures"] < failures:
            state = await office.state(target)
        assert state["nextTryAt"] == office.clock.now() + pause
        assert (state["status"], state["lastError"]) == ("retrying", "it is down")
        office.passes(pause - 0.5)
        assert len(office.channels.tried) == failures, "not before its time"
        if failures == 4:
            office.channels.down = set()
        office.passes(0.5)
    await wait_until_async(lambda: len(office.channels.sent) == 2)
    assert office.channels.of("down.example") == ["Trainshed: job a completed", "Trainshed: job b completed"]


async def test_after_a_day_of_failure_what_is_older_is_given_up_and_said(office: Office) -> None:
    target = await office.add("down.example")
    office.channels.down = {"down.example"}
    office.service.start()
    office.happens("job.completed", "lost")
    await wait_until_async(lambda: len(office.channels.tried) == 1)
    office.passes(DAY / 2)
    office.happens("job.completed", "kept")
    await wait_until_async(lambda: len(office.channels.tried) == 2)
    office.passes(DAY / 2 + 1)
    url = office.database.url
    await wait_until_async(lambda: recorded(url, "notification.dropped"))
    (said,) = recorded(url, "notification.dropped")
    assert (said["data"]["targetId"], said["data"]["count"]) == (target, 1)
    assert said["subject"] == f"notification-target/{target}"
    assert (await office.state(target))["status"] == "failing"
    await wait_until_async(lambda: len(office.channels.tried) == 3)
    office.channels.down = set()
    office.passes(700)
    await wait_until_async(lambda: len(office.channels.sent) == 2)
    assert office.channels.of("down.example") == [
        "Trainshed: job kept completed",
        "Trainshed: 1 notifications were lost",
    ]
    assert (await office.state(target))["status"] == "ok"


async def test_the_next_person_hears_of_pools_whose_role_it_may_pass(office: Office) -> None:
    owner = office.user("owner", [ROLE])
    await office.add("owner.example", owner)
    await office.add("next.example", office.user("next", [ROLE]))
    await office.add("other.example", office.user("other", ["arn:aws:iam::123456789012:role/Sales"]))
    office.service.start()
    office.happens("job.completed", "job", userId=owner.user_id, status="Completed")
    office.happens("pool.available", "job", **POOL, userId=owner.user_id, until=office.clock.now() + 60)
    office.happens("job.completed", "last", userId=owner.user_id, status="Completed")
    await wait_until_async(lambda: len(office.channels.of("owner.example")) == 3)
    await wait_until_async(lambda: len(office.channels.of("next.example")) == 1)
    assert office.channels.of("other.example") == []
    assert office.channels.any_address == {"owner.example": False, "next.example": False}


async def test_what_is_removed_gets_nothing_more_and_so_does_a_user_that_left(office: Office) -> None:
    gone = await office.add("gone.example")
    await office.add("left.example", office.user("left", [ROLE]))
    await office.add("stays.example")
    office.service.start()
    await office.service.remove(office.admin, gone)
    await office.database.write(lambda session: office.identity.delete_user(session, "left"))
    office.happens("pool.available", "job", **POOL, until=office.clock.now() + 60)
    await wait_until_async(lambda: len(office.channels.sent) == 1)
    assert office.channels.of("stays.example")
    assert [each["url"] for each in await office.service.list(office.admin)] == ["https://stays.example/***"]


async def test_a_key_file_that_changed_fails_the_target_in_words(office: Office) -> None:
    target = await office.add("hook.example")
    office.database.write_sync(_spoil)
    office.service.start()
    office.happens("job.completed", "a")
    while not (state := await office.state(target))["failures"]:
        pass
    assert "does not open" in state["lastError"]
    assert office.channels.tried == []


@pytest.mark.parametrize("seed", range(5))
async def test_whenever_it_is_interrupted_nothing_is_lost_or_out_of_order(office: Office, seed: int) -> None:
    dice = random.Random(seed)
    await office.add("hook.example")
    names = [f"job-{number}" for number in range(25)]
    for name in names:
        office.happens("job.completed", name)
    interruptions, longest = 0, 0.03
    while (before := len(set(office.channels.sent))) < len(names):
        office.service.start()
        await asyncio.sleep(dice.random() * longest)  # where it strikes is the point
        await office.service.stop()
        interruptions += 1
        assert interruptions < 1000
        # On a busy machine the way to the first delivery may take longer than that: then later strikes reach beyond it.
        longest = 0.03 if len(set(office.channels.sent)) > before else longest * 1.1
    arrived = [title.split()[2] for title in office.channels.of("hook.example")]
    assert list(dict.fromkeys(arrived)) == names, "each first arrived in its turn"
    positions = [names.index(name) for name in arrived]
    steps = [after - before for before, after in itertools.pairwise(positions)]
    assert set(steps) <= {0, 1}, "what comes again is the one that was under way"


async def test_targets_that_fail_wait_for_places_that_sound_ones_do_not_need(office: Office) -> None:
    FakeChannel.heavy = True
    try:
        hanging = [f"hanging{number}.example" for number in range(6)]
        for host in hanging:
            await office.add(host)
        office.channels.down = set(hanging)
        office.service.start()
        office.happens("job.completed", "a")
        await wait_until_async(lambda: set(office.channels.tried) == set(hanging))
        while any(each["failures"] == 0 for each in await office.service.list(office.admin)):
            pass
        office.channels.hanging, office.channels.down = set(hanging), set()
        await office.add("sound.example")
        office.passes(3)
        office.happens("job.completed", "b")
        await wait_until_async(lambda: office.channels.of("sound.example") == ["Trainshed: job b completed"])
        await wait_until_async(lambda: len(office.channels.tried) >= len(hanging) + 4 + 1)
        assert len(office.channels.tried) == len(hanging) + 4 + 1, "four of those that failed are tried at a time"
    finally:
        FakeChannel.heavy = False


async def test_a_worker_for_a_target_that_has_failed_meanwhile_does_not_try_it_again(office: Office) -> None:
    await office.add("down.example")
    office.channels.down = {"down.example"}
    office.service.start()
    office.happens("job.completed", "a")
    dispatcher = office.service._dispatcher

    async def failed() -> bool:
        (target,) = await office.service.list(office.admin)
        return bool(target["failures"] == 1 and not dispatcher._workers)

    while not await failed():
        pass
    (target,) = await office.service.list(office.admin)
    dispatcher._start_worker(target["id"], 0, dispatcher._seen)  # as by a list that was read before the failure
    await dispatcher._workers[target["id"]]
    assert office.channels.tried == ["down.example"]


def _cursor(office: Office, target_id: str) -> int:
    from sqlalchemy import select

    from trainshed_service.store.tables import notification_targets

    query = select(notification_targets.c.delivered_at).where(notification_targets.c.id == target_id)
    return int(office.database.read_sync(lambda session: session.scalar(query)) or 0)


def _spoil(session: object) -> None:
    from sqlalchemy import update
    from sqlalchemy.orm import Session

    from trainshed_service.store.tables import notification_targets

    assert isinstance(session, Session)
    session.execute(update(notification_targets).values(url_sealed=b"x" * 40))
