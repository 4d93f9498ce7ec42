"""A database and an identity service of their own for each test; no thread, no server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from trainshed_service.clock import ManualClock
from trainshed_service.identity import IdentityService
from trainshed_service.store.models import Base


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def identity(tmp_path: Path, clock: ManualClock) -> IdentityService:
    return IdentityService(tmp_path / "home", clock)


@pytest.fixture
def session() -> Iterator[Session]:
    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        yield session
    engine.dispose()
