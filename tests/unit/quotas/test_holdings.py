"""Hard quotas on either database: exact under concurrency, counted anew when they come, and over processes."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainshed_service.core import Core, build_core
from trainshed_service.identity import Principal
from trainshed_service.quotas import Admission, Rule, holdings, rules, soft_quotas, warm_room
from trainshed_service.scheduling.events import QuotaRule
from trainshed_service.store.models import Cluster
from trainshed_service.store.tables import jobs, meta, quota_holdings, users
from trainshed_service.wire import ApiError

TYPE = "ml.m5.xlarge"
ROLE = "arn:aws:iam::123456789012:role/R"
_numbers = itertools.count()


def request(count: int = 1, kind: str = TYPE, role: str = ROLE) -> dict[str, Any]:
    return {
        "TrainingJobName": f"job-{next(_numbers)}",
        "RoleArn": role,
        "AlgorithmSpecification": {"TrainingImage": "image", "TrainingInputMode": "File"},
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/out/"},
        "ResourceConfig": {"InstanceType": kind, "InstanceCount": count, "VolumeSizeInGB": 10},
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
    }


async def user(core: Core, name: str) -> Principal:
    identity = core.services.identity

    def make(session: Session) -> Principal:
        identity.create_user(session, name)
        found = identity.user_principal(session, name)
        assert found is not None
        return found

    return await core.services.database.write(make)


async def create(core: Core, who: Principal, *arguments: Any, **more: Any) -> str:
    body = request(*arguments, **more)
    await core.services.jobs.create(body, principal=who, raw_body=b"{}")
    return str(body["TrainingJobName"])


async def attempt(core: Core, who: Principal, *arguments: Any) -> ApiError | None:
    try:
        await create(core, who, *arguments)
    except ApiError as error:
        assert error.code == "ResourceLimitExceeded"
        return error
    return None


async def test_of_creates_at_once_in_two_processes_as_many_as_fit(core: Core) -> None:
    """Two sets of services over one database, as two processes would be."""
    anna = await user(core, "anna")
    second = await build_core(core.services.settings, core.services.clock)
    try:
        await create(second, anna)  # the second one has read that there are no quotas
        await core.services.quotas.put(Rule("user", "anna", TYPE, 7, None, True))
        tries = [attempt(core if number % 2 else second, anna, 2) for number in range(16)]
        refused = [error for error in await asyncio.gather(*tries) if error is not None]
    finally:
        await second.close()
    assert len(refused) == 13
    used = await core.services.database.read(
        lambda session: holdings.held(session, Rule("user", "anna", TYPE, 7, None, True, anna.user_id))
    )
    assert used == 7


async def test_who_takes_a_quota_away_is_heard_everywhere(core: Core) -> None:
    anna = await user(core, "anna")
    second = await build_core(core.services.settings, core.services.clock)
    try:
        rule = Rule("all", "*", "*", 1, None, True)
        await core.services.quotas.put(rule)
        assert await attempt(second, anna, 2) is not None
        await core.services.quotas.remove(rule)
        assert await attempt(second, anna, 2) is None
    finally:
        await second.close()


async def test_each_rule_that_concerns_a_job_holds(core: Core) -> None:
    anna, ben = await user(core, "anna"), await user(core, "ben")
    await create(core, ben, 2)
    for rule in (
        Rule("user", "anna", "*", 5, None, True),
        Rule("role", ROLE, TYPE, 4, None, True),
        Rule("all", "*", "*", 9, None, True),
        Rule("user", "ben", "*", 0, None, False),  # soft: nobody is refused for it
    ):
        await core.services.quotas.put(rule)
    assert await attempt(core, anna, 2) is None
    by_role = await attempt(core, anna, 1)
    assert by_role is not None
    assert "is 4 Instances, with current utilization of 4 Instances and a request delta of 1" in by_role.message
    assert await attempt(core, anna, 3, "ml.c5.xlarge") is None
    by_user = await attempt(core, anna, 1, "ml.c5.xlarge")
    assert by_user is not None
    assert "'all instance types for training job usage' is 5 Instances" in by_user.message
    assert await attempt(core, ben, 2, "ml.c5.xlarge") is None
    by_all = await attempt(core, ben, 1, "ml.c5.xlarge")
    assert by_all is not None
    assert "everybody together" in by_all.message


async def test_what_is_counted_is_what_has_not_ended(core: Core) -> None:
    """The rows are those of the jobs, whenever the quota came, and they go when somebody counts."""
    anna = await user(core, "anna")
    names = [await create(core, anna, 2) for _ in range(3)]
    rule = Rule("user", "anna", TYPE, 8, None, True, anna.user_id)
    database = core.services.database

    def rows(session: Session) -> int:
        return len(session.execute(quota_holdings.select()).all())

    assert await database.read(rows) == 0
    await core.services.quotas.put(rule)
    assert await database.read(rows) == 3
    await core.services.jobs.stop(names[0])
    assert await database.read(lambda session: holdings.held(session, rule)) == 4
    assert await attempt(core, anna, 2) is None
    assert await database.read(rows) == 3  # that of the job that ended went
    await core.services.jobs.stop(names[1])
    await core.services.jobs.delete(names[1])
    assert await database.read(lambda session: holdings.held(session, rule)) == 4
    await core.services.quotas.remove(rule)
    assert await database.read(rows) == 0


async def test_a_refused_job_leaves_nothing(core: Core) -> None:
    anna = await user(core, "anna")
    await core.services.quotas.put(Rule("user", "anna", "*", 1, None, True))
    assert await attempt(core, anna, 2) is not None

    def left(session: Session) -> tuple[int, int]:
        return len(session.execute(select(jobs.c.id)).all()), len(session.execute(quota_holdings.select()).all())

    assert await core.services.database.read(left) == (0, 0)
    assert await attempt(core, anna, 1) is None


async def test_without_hard_quotas_the_version_says_so(core: Core) -> None:
    database = core.services.database

    def version(session: Session) -> str | None:
        return session.scalar(select(meta.c.value).where(meta.c.key == "quota_version"))

    assert await database.read(version) == "none"
    await core.services.quotas.put(Rule("all", "*", "*", 5, None, False))
    assert await database.read(version) == "none"
    await core.services.quotas.put(Rule("all", "*", "*", 5, None, True))
    first = await database.read(version)
    await core.services.quotas.put(Rule("all", "*", "*", 5, None, True))
    assert len({"none", first, await database.read(version)}) == 3
    looked: list[Any] = []
    admission = Admission(core.services.identity, "open")
    known = await database.read(lambda session: looked.append(admission._rules(session)) or admission._rules(session))
    assert known == tuple(looked[0])


async def test_the_planner_is_told_of_soft_rules_alone(core: Core) -> None:
    anna = await user(core, "anna")
    for rule in (
        Rule("user", "anna", TYPE, 2, None, False),
        Rule("role", ROLE, "*", 3, 1, False),
        Rule("all", "*", "*", 4, None, True),
        Rule("all", "*", TYPE, None, 4, False),
    ):
        await core.services.quotas.put(rule)
    told = (await core.services.quotas.soft()).rules
    assert told == (
        QuotaRule("role", ROLE, "*", 3, ROLE),
        QuotaRule("user", str(anna.user_id), TYPE, 2, "anna"),
    )
    assert (await core.services.database.read(soft_quotas)).rules == told
    assert len(await core.services.database.read(rules)) == 4


async def test_warm_instances(core: Core) -> None:
    anna = await user(core, "anna")
    database = core.services.database
    name = await create(core, anna, 2)

    def keep(session: Session) -> None:
        job_id = session.scalar(select(jobs.c.id).where(jobs.c.name == name))
        fields = {"RoleArn": ROLE, "ResourceConfig.InstanceType": TYPE, "ResourceConfig.InstanceCount": 2}
        session.add(
            Cluster(
                id="kept", state="warm", epoch=1, created_at=1.0, match_key="k", match_fields=fields,
                last_job_id=job_id, warm_since=2.0, warm_until=1e10,
            )
        )  # fmt: skip

    async def room(kind: str = TYPE, held: int = 0, role: str = ROLE) -> int | None:
        return await database.read(lambda session: warm_room(session, anna.user_id, role, kind, held))

    await database.write(keep)
    assert await room() is None
    await core.services.quotas.put(Rule("user", "anna", "*", None, 5, False))
    assert await room() == 3
    assert await room(held=2) == 5
    await core.services.quotas.put(Rule("role", ROLE, TYPE, None, 1, False))
    assert await room() == 0  # never less
    assert await room(held=2) == 1
    assert await room("ml.c5.xlarge") == 3
    assert await room(role="arn:aws:iam::123456789012:role/Other") == 3
    (mine,) = [use for use in await core.services.quotas.usage() if use.rule.subject_kind == "user"]
    assert (mine.used, mine.warm_used) == (2, 2)  # the job waits: a soft rule counts its pool alone


async def test_the_rules_of_a_user_end_with_it(core: Core) -> None:
    anna = await user(core, "anna")
    await core.services.quotas.put(Rule("user", "anna", "*", 1, None, True))
    services = core.services

    def leave(session: Session) -> None:
        had_hard = services.quotas.lock(session)
        services.identity.delete_user(session, "anna")
        services.quotas.renew(session, had_hard)

    await services.database.write(leave)
    assert await services.database.read(rules) == []
    again = await user(core, "anna")
    assert again.user_id != anna.user_id
    assert await attempt(core, again, 5) is None
    stored = await services.database.read(
        lambda session: session.scalar(select(users.c.name).where(users.c.id == anna.user_id))
    )
    assert stored == f"anna~{anna.user_id}"
