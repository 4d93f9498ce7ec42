"""Members of a gang on one agent start together."""

from __future__ import annotations

from trainshed_worker.agent.gangs import Gangs


async def test_the_last_member_that_is_ready_wakes_all_and_only_then_is_the_gang_complete() -> None:
    gangs, woken = Gangs(), []

    async def notify(name: str) -> None:
        woken.append(name)

    await gangs.ready("a", "one", 2, lambda: notify("one"))
    await gangs.ready("a", "one", 2, lambda: notify("one"))  # said again
    assert not gangs.is_complete("a")
    assert woken == []
    await gangs.ready("a", "two", 2, lambda: notify("two"))
    assert gangs.is_complete("a")
    assert woken == ["one", "two"]
    assert not gangs.is_complete("b")


async def test_a_member_that_left_does_not_count_and_a_complete_gang_stays_so_until_all_are_gone() -> None:
    gangs = Gangs()

    async def notify() -> None:
        return None

    await gangs.ready("a", "one", 2, notify)
    gangs.leave("a", "one")
    await gangs.ready("a", "two", 2, notify)
    assert not gangs.is_complete("a")
    await gangs.ready("a", "one", 2, notify)
    gangs.leave("a", "one")
    assert gangs.is_complete("a")
    gangs.leave("a", "two")
    assert not gangs.is_complete("a")
    gangs.leave("a", "two")
