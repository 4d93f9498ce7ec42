"""What the public examples call, and a training that goes on from its checkpoint as if it had never stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.ranks import run_ranks

pytest.importorskip("torch", reason="the runtime extra is not installed")


def test_the_examples_calls_and_a_restart_at_a_checkpoint(tmp_path: Path) -> None:
    run = "tests.unit.runtime.smp.public_calls:run"
    whole = run_ranks(2, run, str(tmp_path), 8, False, group=False)
    again = run_ranks(2, run, str(tmp_path), 8, True, group=False)
    for one, other in zip(whole, again, strict=True):
        assert one["newest"] == "total_steps4_partial"
        assert other["losses"] == one["losses"][4:]
        assert other["evaluated"] == one["evaluated"] < one["losses"][0]
        assert one["hooked"] == other["hooked"] == [(True, True)]
        assert one["shapes"]["inner.weight"] == [16, 6] and one["counts"]["inner.weight"] == 96
        assert len(one["shapes"]) == 14
