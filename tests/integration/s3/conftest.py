from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.gateway import GatewayUnderTest, running_gateway
from tests.support.seaweed import fresh_bucket, make_store, seaweed_store
from trainshed_service.embedded.store import EmbeddedStore

__all__ = ["make_store", "seaweed_store"]


@pytest.fixture(scope="session")
def gateway(seaweed_store: EmbeddedStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayUnderTest]:
    """One gateway for all tests that do not break it; mode `aes`."""
    with running_gateway(seaweed_store, tmp_path_factory.mktemp("gateway home")) as running:
        yield running


@pytest.fixture
def bucket(seaweed_store: EmbeddedStore) -> str:
    return fresh_bucket(seaweed_store)
