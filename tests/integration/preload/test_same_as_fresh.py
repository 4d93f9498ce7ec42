"""Every script prints, ends and exits in a fork of the preloaded parent as it does in a process of its own."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.integration.preload.scripts import light
from tests.integration.preload.support import Ended, Job
from trainshed_worker.preload.starting import PreloadedParent

Run = Callable[[Job, PreloadedParent | None], Ended]

LIGHT = light()


def _comparable(ended: Ended) -> list[str]:
    """Lines without addresses in memory."""
    return [re.sub(r"0x[0-9a-f]{6,}", "0x…", line) for line in ended.lines]


@pytest.mark.parametrize("name", LIGHT)
def test_a_script_runs_the_same_way(name: str, parent: PreloadedParent, run_job: Run) -> None:
    forked, fresh = run_job(LIGHT[name], parent), run_job(LIGHT[name], None)
    assert forked.fresh == {"0": ""}
    assert fresh.fresh == {"0": "no preloaded parent was ready"}
    assert _comparable(forked) == _comparable(fresh)
    assert (forked.record.exit_code, forked.record.signal) == (fresh.record.exit_code, fresh.record.signal)
