"""Quotas that act later than at create: a soft one lets a job wait and go on when it changes, a warm one ends pools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import select

from tests.integration.core.conftest import api, join, start_api
from tests.integration.core.driving import create, describe, run_until, secondary, step_until, until_phase
from tests.support.api_process import ApiProcess
from tests.support.scripted_agent import ScriptedAgent
from trainshed_service.clock import SystemClock
from trainshed_service.quotas import QuotaService, Rule
from trainshed_service.scheduling.events import Quotas
from trainshed_service.store import Database
from trainshed_service.store.tables import events
from trainshed_worker.protocol import Phase

__all__ = ["api", "join", "start_api"]
Join = Callable[..., ScriptedAgent]


def message(api: ApiProcess, name: str) -> str:
    return str(describe(api, name)["SecondaryStatusTransitions"][-1]["StatusMessage"])


def put(api: ApiProcess, **body: Any) -> None:
    assert api.call("PUT", "/v1/quotas", body).status_code == 200


def test_a_job_beyond_a_soft_quota_waits_until_there_is_room(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=4)
    put(api, user="admin", instances=1)
    create(api, "first")
    until_phase([agent], Phase.RUNNING, 1)
    create(api, "second")
    step_until([agent], lambda: "quota" in message(api, "second").lower(), what="the reason names the quota")
    create(api, "third", 3)
    assert describe(api, "second")["TrainingJobStatus"] == "InProgress"
    put(api, user="admin", instances=2)  # wakes the planner
    step_until([agent], lambda: secondary(api, "second")[-1] == "Training", what="the second job trains")
    assert "quota" in message(api, "third").lower()
    agent.exits = 0
    for name in ("first", "second"):
        run_until(api, [agent], name, "Completed")
    assert describe(api, "third")["TrainingJobStatus"] == "InProgress"
    assert api.call("DELETE", "/v1/quotas?user=admin").status_code == 200
    run_until(api, [agent], "third", "Completed")


def test_a_quota_is_kept_to_after_a_restart(api: ApiProcess, join: Join) -> None:
    """Also one that another process has set meanwhile."""
    api.kill()
    database = Database(api.settings.resolved_database_url)
    told: list[Quotas] = []
    quotas = QuotaService(database, SystemClock(), told.append)
    try:
        database.write_sync(lambda session: quotas.store(session, Rule("all", "*", "*", 1, None, False)))
    finally:
        database.close()
    api.start()
    agent = join(api, slots=2)
    create(api, "big", 2)
    create(api, "small")
    until_phase([agent], Phase.RUNNING, 1)
    assert "quota" in message(api, "big").lower()


def test_instances_beyond_the_quota_of_warm_ones_are_not_kept(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=2)
    agent.exits = 0
    put(api, all=True, warmInstances=1)
    keep = {"InstanceType": "ml.c5.xlarge", "VolumeSizeInGB": 10, "KeepAlivePeriodInSeconds": 600}
    for name, count, status in (("two", 2, "Terminated"), ("one", 1, "Available")):
        create(api, name, ResourceConfig={**keep, "InstanceCount": count})
        run_until(api, [agent], name, "Completed")

        def has_status(name: str = name, status: str = status) -> bool:
            return (describe(api, name).get("WarmPoolStatus") or {}).get("Status") == status

        step_until([agent], has_status, what=f"the pool of {name} is {status}")
    (shown,) = api.rest("/v1/quotas")["quotas"]
    assert (shown["warmUsed"], shown["warmInstances"], shown["instances"]) == (1, 1, None)
    database = Database(api.settings.resolved_database_url)
    try:
        words = database.read_sync(
            lambda session: session.scalars(select(events.c.message).where(events.c.kind == "pool.not_kept")).all()
        )
    finally:
        database.close()
    assert words == ["The job's instances are not kept warm: a quota of warm instances has room for 1, and they are 2"]
