"""Fixtures that tests of several folders share; each folder's conftest imports those that it needs."""

import re
import uuid

import pytest


@pytest.fixture
def job_name(request: pytest.FixtureRequest) -> str:
    """A job name of at most 49 characters that tells the test."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    return f"{words[:40].strip('-')}-{uuid.uuid4().hex[:8]}"
