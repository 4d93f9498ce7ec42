"""What public scripts put into user content is read by a plain torch.load once smp is imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.ranks import run_ranks

pytest.importorskip("torch", reason="the runtime extra is not installed")


def test_numbers_and_arguments_are_read_by_a_plain_load(tmp_path: Path) -> None:
    [found] = run_ranks(
        1, "tests.unit.runtime.smp.scripts:user_content", str(tmp_path / "user_content.pt"), group=False
    )
    assert found == (7, 0.5, [1, 2], "tiny")
