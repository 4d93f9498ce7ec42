"""One service for the tests of this folder; each test has jobs of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.api_process import ApiProcess
from tests.support.fixtures import job_name
from tests.support.gateway import running_gateway
from tests.support.seaweed import seaweed_store
from tests.support.shown_service import ShownService, shown_service
from trainshed_service.embedded.store import EmbeddedStore

__all__ = ["job_name", "seaweed_store"]


@pytest.fixture(scope="package")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShownService]:
    with shown_service(tmp_path_factory.mktemp("a home")) as service:
        yield service


@pytest.fixture
def anonymous(shown: ShownService) -> Iterator[httpx.Client]:
    with shown.browser() as client:
        yield client


@pytest.fixture
def person(shown: ShownService) -> Iterator[httpx.Client]:
    with shown.logged_in() as client:
        yield client


@pytest.fixture(scope="package")
def api(seaweed_store: EmbeddedStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    home: Path = tmp_path_factory.mktemp("a home")
    with running_gateway(seaweed_store, home) as gateway:
        process = ApiProcess(home, gateway_port=gateway.port)
        process.start()
        try:
            yield process
        finally:
            process.kill()
