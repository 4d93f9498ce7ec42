"""One stack for each worker of pytest-xdist: these tests break it, and it comes back whole or the test fails."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.fixtures import job_name
from tests.support.parts import PARTS, parts_of, wait_until_up
from tests.support.stack import Stack
from trainshed_service.embedded.home import Home

__all__ = ["job_name"]

GRACE_SECONDS = 3.0
SETTINGS = {"TRAINSHED_STOP_GRACE_SECONDS": str(GRACE_SECONDS)}


@pytest.fixture(scope="session")
def chaos_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    stack = Stack.up(tmp_path_factory.mktemp("chaos") / "home", "--nodes", "4", settings=SETTINGS)
    yield stack
    stack.down()


@pytest.fixture
def stack(chaos_stack: Stack) -> Stack:
    """The worker's stack, all parts of it alive, whatever the test before did to it."""
    if set(parts_of(chaos_stack.home)) != set(PARTS):
        chaos_stack.down()
        return Stack.up(chaos_stack.home, settings=SETTINGS)
    if Home(chaos_stack.home).read().main_url != chaos_stack.env["AWS_ENDPOINT_URL"]:
        chaos_stack = Stack.at(chaos_stack.home)
    wait_until_up(chaos_stack)
    return chaos_stack
