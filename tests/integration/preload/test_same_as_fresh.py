"""Every script prints, ends and exits in a fork of the preloaded parent as it does in a process of its own."""

from __future__ import annotations

import pytest

from tests.integration.preload.scripts import light
from tests.integration.preload.support import Run, compare
from trainshed_worker.preload.starting import PreloadedParent

LIGHT = light()


@pytest.mark.parametrize("name", LIGHT)
def test_a_script_runs_the_same_way(name: str, parent: PreloadedParent, run_job: Run) -> None:
    compare(LIGHT[name], parent, run_job)
