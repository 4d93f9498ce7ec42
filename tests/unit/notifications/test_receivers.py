"""Who is told, and how much: the owner, the next person, everybody else."""

from __future__ import annotations

import pytest

from tests.unit.notifications.conftest import POOL, ROLE, Office
from trainshed_service.identity import Principal
from trainshed_service.notifications.receivers import FULL, Receiver, Sight, sight_of

OTHER = "arn:aws:iam::123456789012:role/Sales"


def sight(office: Office, principal: Principal | None, kind: str, **settings: object) -> Sight | None:
    data = {**POOL, "userId": 10_000, "targetId": "mine"}
    return office.database.read_sync(
        lambda session: sight_of(
            session,
            Receiver("t1", principal),
            kind,
            data,
            office.identity.passing,
            office.settings.model_copy(update=settings),
        )
    )


async def test_everybody_and_administrators(office: Office) -> None:
    for kind in ("job.failed", "pool.available"):
        assert sight(office, None, kind) == FULL
    assert sight(office, office.admin, "pool.expiring") == FULL, "an administrator may pass every role"
    assert sight(office, office.admin, "job.failed") is None, "of a target of its own: only its jobs"


async def test_the_next_person_and_somebody_with_another_role(office: Office) -> None:
    following, other = office.user("following", [ROLE]), office.user("other", [OTHER])
    assert sight(office, following, "pool.available") == Sight(named=False, may_change=False)
    assert sight(office, following, "pool.available", job_visibility="all") == Sight(named=True, may_change=False)
    assert sight(office, following, "job.completed", job_visibility="all") is None
    assert sight(office, other, "pool.available", job_visibility="all") is None


async def test_open_roles_are_everybodys_who_has_no_list(office: Office) -> None:
    listed = office.user("listed", [OTHER])
    free = office.user("free")
    office.database.write_sync(
        lambda session: office.identity.users.restrict(session, office.identity.users.find(session, "free"), False)
    )
    assert sight(office, free, "pool.available", roles="open") is not None
    assert sight(office, free, "pool.available", roles="known") is None
    assert sight(office, listed, "pool.available", roles="open") is None


async def test_what_was_given_up_is_told_to_that_target_alone(office: Office) -> None:
    assert sight(office, None, "notification.dropped") is None
    mine = office.database.read_sync(
        lambda session: sight_of(
            session,
            Receiver("mine", None),
            "notification.dropped",
            {"targetId": "mine"},
            office.identity.passing,
            office.settings,
        )
    )
    assert mine == FULL


@pytest.mark.parametrize("mode", ["open", "known"])
@pytest.mark.parametrize("kind", ["admin", "listed", "none", "free"])
async def test_inside_a_transaction_the_same_roles_may_be_passed(office: Office, mode: str, kind: str) -> None:
    who = {
        "admin": lambda: office.admin,
        "listed": lambda: office.user("u", [ROLE]),
        "none": lambda: office.user("u"),
        "free": lambda: office.user("u"),
    }[kind]()
    if kind == "free":
        office.database.write_sync(
            lambda session: office.identity.users.restrict(session, office.identity.users.find(session, "u"), False)
        )
    passing = office.identity.passing
    for arn in (ROLE, OTHER):
        outside = await passing.may(office.database, mode, who, arn)  # type: ignore[arg-type]
        inside = office.database.read_sync(
            lambda session, arn=arn: passing.may_in(session, mode, who, arn)  # type: ignore[misc,arg-type]
        )
        assert inside == outside
