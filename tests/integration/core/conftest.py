from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.api_process import ApiProcess
from tests.support.scripted_agent import ScriptedAgent


@pytest.fixture
def start_api(tmp_path: Path) -> Iterator[Callable[..., ApiProcess]]:
    """`start_api(lease_seconds=…)`: a running API process with these settings."""
    started: list[ApiProcess] = []

    def start(**settings: Any) -> ApiProcess:
        api = ApiProcess(tmp_path / f"home {len(started)}", **settings)
        started.append(api)
        api.start()
        return api

    yield start
    for api in started:
        api.kill()


@pytest.fixture
def api(start_api: Callable[..., ApiProcess]) -> ApiProcess:
    return start_api()


@pytest.fixture
def join(request: pytest.FixtureRequest) -> Callable[..., ScriptedAgent]:
    """`join(api, slots=2)`: an enrolled agent whose slots are reported empty."""

    def make(api: ApiProcess, **options: Any) -> ScriptedAgent:
        agent = ScriptedAgent(api.url, api.bootstrap.enrollment_token, **options)
        request.addfinalizer(agent.close)
        agent.enroll()
        agent.report().raise_for_status()
        return agent

    return make
