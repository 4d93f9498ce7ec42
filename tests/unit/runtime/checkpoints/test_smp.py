"""smp.save_checkpoint and its like: AWS's layout, other degrees and worlds, full files, export."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.depth import DEEP
from tests.support.ranks import run_ranks

if find_spec("torch") is None:
    pytest.skip("the runtime extra is not installed", allow_module_level=True)

_CASES = "tests.unit.runtime.checkpoints.smp_cases"


@pytest.mark.parametrize(("world", "degree"), [(4, 2), *([(2, 2), (4, 4), (3, 3)] if DEEP else [])])
def test_a_script_saves_and_resumes(tmp_path: Path, world: int, degree: int) -> None:
    root = str(tmp_path)
    saved = run_ranks(world, f"{_CASES}:save", degree, root)
    first = saved[0]
    assert first["merged"] == first["exported"] == first["halves"] == []
    assert all(first["held"]) and not any(any(each["held"]) for each in saved[1:])
    assert len(first["files"]) > 1
    assert {"newest", "steps2_partial", "own.pt_0", f"own.pt_{degree - 1}"} <= set(first["listed"])
    assert "old_partial" not in first["listed"]
    assert [each["own"] for each in saved[:degree]] == list(range(degree))
    names = {path.name for path in (tmp_path / "steps2_partial").iterdir()}
    assert names == {"user_content.pt", *(f"{kind}_{i}.pt" for kind in ("model", "optimizer") for i in range(degree))}
    for ranks, other in [(2, 2)] if not DEEP else [(2, 2), (3, 3), (4, 2), (4, 4)]:  # degree 1 is not clipped
        for found in run_ranks(ranks, f"{_CASES}:resume", other, root):
            assert found["losses"] == pytest.approx(first["losses"], rel=1e-10)
            assert (found["note"], found["buffer"], found["lr"]) == ("mine", 11.0, [0.01, 0.02])
            absent, partial = found["refused"]
            assert "absent_partial is not there" in absent
            assert "pass its tag, or partial=True" in partial
            assert (found["whole"], found["full"]) == ({"whole": True}, [])


def test_the_loss_scale_is_saved_apart_from_the_states(tmp_path: Path) -> None:
    for scale, without, states in run_ranks(2, f"{_CASES}:scaled", 2, str(tmp_path)):
        assert (scale, without) == (32.0, 0.0)
        assert states > 0
    assert (tmp_path / "half_partial" / "fp16_states_1.pt").exists()
