"""Collectives against their definitions, over ranks that are processes."""

import pytest

from tests.support.depth import examples
from tests.support.ranks import run_ranks
from trainshed_runtime.topology import Topology

_CASES = "tests.integration.runtime.collective_cases"


@pytest.mark.parametrize(
    ("world", "per_node", "flat"),
    [
        pytest.param(4, 2, False, id="2x2"),
        pytest.param(6, 2, False, id="3x2"),
        pytest.param(3, 3, False, id="one node"),
        pytest.param(3, 1, False, id="one rank a node"),
        pytest.param(4, 2, True, id="ring of 4"),
        pytest.param(1, 1, False, id="alone"),
    ],
)
def test_every_collective_does_what_it_promises(world: int, per_node: int, flat: bool) -> None:
    count = examples(10)
    compared = run_ranks(
        world, f"{_CASES}:random_cases", Topology(world, per_node), flat, world * 10 + per_node, count, timeout=120
    )
    assert compared == [count] * world


def test_tensors_of_every_layout_and_calls_that_do_not_wait() -> None:
    run_ranks(4, f"{_CASES}:layouts", Topology(4, 2))


def test_what_is_wrong_is_said_before_anything_is_sent() -> None:
    for texts in run_ranks(2, f"{_CASES}:refusals", Topology(2, 1)):
        assert [text.split(":")[0] for text in texts] == ["all_gather"] * 2 + ["reduce_scatter"] * 2 + ["broadcast"]


def test_a_rank_that_does_not_come_is_named() -> None:
    *others, _ = run_ranks(4, f"{_CASES}:late", Topology(4, 2))
    assert "rank 3" in others[2], "the one that shares its node"
    for said in others:
        assert "of the group of ranks [0, 1, 2, 3]" in said
        assert "time limit 1 s" in said or "Connection closed" in said
