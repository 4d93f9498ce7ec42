"""Reading each other's memory on a node: where it can be, where it cannot, and when a rank dies."""

import signal

import pytest

from tests.support.ranks import run_ranks, try_ranks

_CASES = "tests.integration.runtime.near_cases"


@pytest.mark.parametrize(("switch", "expected"), [("1", True), ("0", False)])
def test_a_switch_turns_it_off(switch: str, expected: bool) -> None:
    run_ranks(3, f"{_CASES}:uses_memory", expected, env={"TRAINSHED_NODE_MEMORY": switch})


@pytest.mark.parametrize("rank", [0, 2])
def test_where_one_rank_cannot_all_go_another_way(rank: int) -> None:
    run_ranks(3, f"{_CASES}:one_cannot", rank)


def test_a_dead_rank_is_noticed_at_once() -> None:
    *others, dead = try_ranks(3, f"{_CASES}:dies", 2, timeout=60)
    assert dead.signal == signal.SIGKILL
    for other in others:
        assert other.error is None and other.value < 30, other
