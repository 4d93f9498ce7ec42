"""One preloaded parent for the tests of a process, since it takes seconds to start."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.preload.support import Ended, Job, clean, run
from tests.support.wait import patient
from trainshed_worker.environments import describe
from trainshed_worker.environments.base import own_prefix
from trainshed_worker.preload.starting import PreloadedParent
from trainshed_worker.sandbox import isolation

_ISOLATION = isolation()


@pytest.fixture(autouse=True)
def needs_isolation() -> None:
    if _ISOLATION != "full":
        pytest.skip(f"isolation is {_ISOLATION}")


@pytest.fixture(scope="session")
def parent() -> Iterator[PreloadedParent]:
    if _ISOLATION != "full":
        pytest.skip(f"isolation is {_ISOLATION}")
    with tempfile.TemporaryDirectory(prefix="trainshed parent ") as folder:
        one = PreloadedParent(Path(folder) / "parent", describe(own_prefix()))
        try:
            one.wait_ready(patient(180))
            yield one
        finally:
            one.end()


@pytest.fixture
def run_job() -> Iterator[Callable[[Job, PreloadedParent | None], Ended]]:
    """Run a job to its end in a folder of its own."""
    folders: list[Path] = []

    def run_one(job: Job, parent: PreloadedParent | None) -> Ended:
        folders.append(Path(tempfile.mkdtemp(prefix="trainshed job ")))
        return run(job, folders[-1], parent)

    yield run_one
    for folder in folders:
        clean(folder)
