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
    others = [(2, 2), (4, 4)] if not DEEP else [(1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (4, 4)]
    for ranks, other in others:
        resumed = run_ranks(ranks, f"{_CASES}:resume", {**case, "degree": other}, root, 3)
        assert all(each == _CLOSE(unbroken[after:], rel=1e-10) for each in resumed)


@pytest.mark.parametrize("point", ["written", *(["write", "named", "newest"] if DEEP else [])])
def test_a_rank_that_is_killed_while_saving_spoils_nothing(tmp_path: Path, point: str) -> None:
    root = str(tmp_path)
    case = {"degree": 2}
    outcomes = try_ranks(4, f"{_CASES}:die_while_saving", case, root, point, 3, grace=30, collective_timeout=20)
    assert outcomes[3].signal == 9
    newest = (tmp_path / "newest").read_text()
    durable = point in ("named", "newest")
    assert newest == ("second_sharded" if durable else "good_sharded")
    if not durable:
        assert all("a rank is gone" in str(outcome.value) for outcome in outcomes[:3]), outcomes
    run_ranks(2, f"{_CASES}:resume", {"degree": 2}, root, 1)


def test_a_rank_that_cannot_write_fails_the_save_on_every_rank(tmp_path: Path) -> None:
    told = run_ranks(2, f"{_CASES}:fail_while_saving", {"degree": 2}, str(tmp_path))
    for failed, newest in told:
        assert "was not saved, cannot write its part: rank 0: " in failed
        assert "OSError: [Errno 27] File too large on rank 1" in failed
        assert newest == "first_sharded"
    assert not [entry for entry in tmp_path.iterdir() if entry.name.startswith(".")], "the next save swept it"


def test_what_cannot_be_loaded_or_saved_is_refused_in_words(tmp_path: Path) -> None:
    for nothing, absent, tag, shape, names, accumulation in run_ranks(
        2, f"{_CASES}:refuse", {"degree": 2}, str(tmp_path)
    ):
        assert "has no file 'newest'" in nothing
        assert "b_sharded is not there" in absent
        assert "a file without '/'" in tag
        assert "holds embedding.weight as (19, 12), the module as (19, 13)" in shape
        assert "lacks blocks.2." in names
        assert "save after optimizer.step()" in accumulation


def test_old_checkpoints_are_pruned_and_one_can_be_saved_again(tmp_path: Path) -> None:
    for found in run_ranks(2, f"{_CASES}:keep_two", {"degree": 2}, str(tmp_path)):
        assert found == ["newest", "step2_sharded", "step3_sharded"]


def test_nodes_without_a_shared_filesystem(tmp_path: Path) -> None:
    listed = run_ranks(4, f"{_CASES}:save_per_node", {"degree": 2}, str(tmp_path), ranks_per_node=2)
    assert all(each == ["local_sharded", "newest"] for each in listed)
    written = [{file.name for file in (tmp_path / node / "local_sharded").iterdir()} for node in "01"]
    assert not written[0] & written[1], (
        "together they are the checkpoint, as two hosts that sync to one prefix leave it"
    )
    for node in (tmp_path / "1" / "local_sharded").iterdir():
        node.rename(tmp_path / "0" / "local_sharded" / node.name)
    run_ranks(1, f"{_CASES}:resume", {"degree": 1}, str(tmp_path / "0"), 1)
