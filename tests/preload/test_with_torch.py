"""Training scripts print, end and exit in a fork of the preloaded parent as in a process of their own."""

from __future__ import annotations

import pytest

from tests.integration.preload.support import Run, compare
from tests.preload.training import heavy
from trainshed_worker.preload.starting import PreloadedParent

HEAVY = heavy()


@pytest.mark.parametrize("name", HEAVY)
def test_a_training_script_runs_the_same_way(name: str, parent: PreloadedParent, run_job: Run) -> None:
    compare(HEAVY[name], parent, run_job)
