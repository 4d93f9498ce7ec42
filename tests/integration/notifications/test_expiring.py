"""`pool.expiring` over the real wire: once for each end that is set, before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.integration.core.driving import create
from tests.integration.pools.test_life import until_pool, update, warm
from tests.support.api_process import ApiProcess
from tests.support.events import recorded
from tests.support.scripted_agent import ScriptedAgent
from tests.support.wait import wait_until

Join = Callable[..., ScriptedAgent]


def events_of(api: ApiProcess, job: str, kind: str) -> list[dict[str, Any]]:
    return recorded(api.settings.resolved_database_url, kind, f"job/{job}")


def test_a_pool_says_once_before_each_end_that_it_expires(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=1)
    agent.exits = 0
    create(api, "brief", **warm(seconds=4))
    until_pool(api, [agent], "brief", "Available")
    (first,) = wait_until(lambda: events_of(api, "brief", "pool.expiring"), what="the first warning")
    assert 0 <= first["data"]["until"] - first["at"] <= 2.1, "at half of a short period"
    update(api, "brief", 600)
    assert len(events_of(api, "brief", "pool.expiring")) == 1
    update(api, "brief", 2)
    until_pool(api, [], "brief", "Terminated")
    warnings = events_of(api, "brief", "pool.expiring")
    assert len(warnings) == 2, "one for the first end, none for the one that was changed, one for the last"
    (ended,) = events_of(api, "brief", "pool.ended")
    assert warnings[1]["id"] < ended["id"]
    assert warnings[1]["data"]["roleArn"].endswith("TrainshedExecutionRole")
    assert warnings[1]["data"]["instanceCount"] == 1


def test_the_warning_survives_the_service(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=1)
    agent.exits = 0
    create(api, "survivor", **warm(seconds=60))  # long enough for a slow restart; told of at its half
    until_pool(api, [agent], "survivor", "Available")
    api.kill()
    api.start()
    wait_until(lambda: events_of(api, "survivor", "pool.expiring"), timeout=90, what="the warning")
    api.kill()
    api.start()
    update(api, "survivor", 0)
    until_pool(api, [], "survivor", "Terminated")
    assert len(events_of(api, "survivor", "pool.expiring")) == 1


def test_no_warning_where_it_is_off(start_api: Callable[..., ApiProcess], join: Join) -> None:
    api = start_api(pool_warning_seconds=0)
    agent = join(api, slots=1)
    agent.exits = 0
    create(api, "quiet", **warm(seconds=2))
    until_pool(api, [agent], "quiet", "Available")
    until_pool(api, [], "quiet", "Terminated")
    assert events_of(api, "quiet", "pool.ended") and not events_of(api, "quiet", "pool.expiring")
