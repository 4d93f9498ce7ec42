"""One service for the tests of this folder; each test has jobs of its own."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.support.fixtures import job_name
from tests.support.seaweed import seaweed_store
from tests.support.shown_service import ShownService, shown_service

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
