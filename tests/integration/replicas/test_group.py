"""Who leads, where the process itself fails at what it is told."""

from __future__ import annotations

import pytest

from tests.support.postgres import PostgresServer, postgres
from tests.support.wait import wait_until_async
from trainshed_service.replicas import Message
from trainshed_service.replicas.postgres import PostgresGroup

__all__ = ["postgres"]

pytestmark = pytest.mark.needs("postgres")


async def test_one_that_fails_at_a_message_leads_no_more_until_it_listens_anew(postgres: PostgresServer) -> None:
    url = postgres.new_database(migrated=False)
    one, other = PostgresGroup(url), PostgresGroup(url)
    roles: list[bool] = []
    got: list[Message] = []

    async def change(leads: bool) -> None:
        roles.append(leads)

    async def ignore(leads: bool) -> None:
        del leads

    def take(message: Message) -> None:
        got.append(message)
        if message.finish:
            raise RuntimeError("a fault of ours")

    try:
        await one.join(take, change)
        one.tell(one.message(replan=True))
        assert one.leads
        await other.join(lambda _: None, ignore)
        other.tell(other.message(finish=("an attempt",)))
        await wait_until_async(lambda: roles[:2] == [True, False], what="it has laid down the lead")
        await wait_until_async(lambda: one.leads or other.leads, what="one of them leads again")
        await wait_until_async(lambda: got[-1].everything, what="it asked itself for all that it missed")
        assert not (one.leads and other.leads)
    finally:
        await one.leave()
        await other.leave()
