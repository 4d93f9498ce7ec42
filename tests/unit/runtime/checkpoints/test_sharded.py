"""Sharded checkpoints: equal curves under another degree and world, nothing half-done after a crash."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support.depth import DEEP
from tests.support.ranks import run_ranks, try_ranks

if find_spec("torch") is None:
    pytest.skip("the runtime extra is not installed", allow_module_level=True)

_CASES = "tests.unit.runtime.checkpoints.cases"
_CLOSE = pytest.approx


@pytest.mark.parametrize(
    ("world", "degree", "after", "wait", "optimizer"),
    [
        (4, 2, 2, False, "adamw"),
        *(
            [(2, 2, 0, True, "adamw"), (4, 4, 1, True, "sgd"), (4, 1, 3, False, "adamw"), (1, 1, 2, True, "sgd")]
            if DEEP
            else []
        ),
    ],
)
def test_curves_go_on_under_another_degree_and_world(
    tmp_path: Path, world: int, degree: int, after: int, wait: bool, optimizer: str
) -> None:
    case: dict[str, Any] = {"degree": degree, "hidden": 10, "tied": True, "optimizer": optimizer}
    root = str(tmp_path / "check points")
    (unbroken, *_) = run_ranks(world, f"{_CASES}:save_in_the_middle", case, root, after, 3, wait)
    others = [(2, 2)] if not DEEP else [(1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (4, 4)]
    for ranks, other in others:
        resumed = run_ranks(ranks, f"{_CASES}:resume", {**case, "degree": other}, root, 3)
        assert all(each == _CLOSE(unbroken[after:], rel=1e-10) for each in resumed)


@pytest.mark.parametrize("point", ["written", *(["write", "named", "newest"] if DEEP else [])])
def test_a_rank_that_is_killed_while_saving_spoils_nothing(tmp_path: Path, point: str) -> None:
    root = str(tmp_path)
    case = {"degree": 2}
    outcomes = try_ranks(2, f"{_CASES}:die_while_saving", case, root, point, 1, grace=30, collective_timeout=20)
    assert outcomes[1].signal == 9
    newest = (tmp_path / "newest").read_text()
    durable = point in ("named", "newest")
    assert newest == ("second_sharded" if durable else "good_sharded")
    if not durable:
        assert all("a rank is gone" in str(outcome.value) for outcome in outcomes[:1]), outcomes
    run_ranks(1, f"{_CASES}:resume", {"degree": 1}, root, 1)


def test_failures_refusals_and_pruning(tmp_path: Path) -> None:
    names = ["fail_while_saving", "refuse", "keep_two"]
    for failures, refusals, kept in run_ranks(2, f"{_CASES}:several", names, {"degree": 2}, str(tmp_path)):
        failed, newest = failures
        assert "was not saved, cannot write its part: rank 0: " in failed
        assert "OSError: [Errno 27] File too large on rank 1" in failed
        assert newest == "first_sharded"
        nothing, absent, tag, shape, modules, accumulation = refusals
        assert "has no file 'newest'" in nothing
        assert "b_sharded is not there" in absent
        assert "a file without '/'" in tag
        assert "holds embedding.weight as (19, 16), the module as (19, 17)" in shape
        assert "lacks blocks.2." in modules
        assert "save after optimizer.step()" in accumulation
        assert kept == ["newest", "step2_sharded", "step3_sharded"], "a tag that is saved again replaces its folder"
    left = [entry for entry in (tmp_path / "fail_while_saving").iterdir() if entry.name.startswith(".")]
    assert not left, "the save after a failed one sweeps what that left"


def test_nodes_without_a_shared_filesystem(tmp_path: Path) -> None:
    listed = run_ranks(2, f"{_CASES}:save_per_node", {"degree": 2}, str(tmp_path), ranks_per_node=1)
    assert all(each == ["local_sharded", "newest"] for each in listed)
    written = [{file.name for file in (tmp_path / node / "local_sharded").iterdir()} for node in "01"]
    assert not written[0] & written[1], (
        "together they are the checkpoint, as two hosts that sync to one prefix leave it"
    )
    for node in (tmp_path / "1" / "local_sharded").iterdir():
        node.rename(tmp_path / "0" / "local_sharded" / node.name)
    run_ranks(1, f"{_CASES}:resume", {"degree": 1}, str(tmp_path / "0"), 1)
