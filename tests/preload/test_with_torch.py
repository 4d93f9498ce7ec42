"""Training scripts print, end and exit in a fork of the preloaded parent as in a process of their own."""

from __future__ import annotations

import pytest

from tests.integration.preload.support import Run, compare
from tests.preload.libraries import NotInstallable, libraries
from tests.preload.training import LIBRARIES, heavy, with_libraries
from trainshed_worker.preload.starting import PreloadedParent

HEAVY = heavy()


@pytest.mark.parametrize("name", HEAVY)
def test_a_training_script_runs_the_same_way(name: str, parent: PreloadedParent, run_job: Run) -> None:
    compare(HEAVY[name], parent, run_job)


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_upon_torch_runs_the_same_way(name: str, parent: PreloadedParent, run_job: Run) -> None:
    try:
        installed = libraries()
    except NotInstallable as error:
        pytest.skip(f"lightning and transformers cannot be installed here: {error}")
    compare(with_libraries(installed)[name], parent, run_job)
