"""The support for tests with ranks itself."""

import os
import signal

import pytest

from tests.support.ranks import RanksFailed, run_ranks, try_ranks

_CASES = "tests.unit.runtime.rank_cases"


def test_ranks_reduce_together_and_give_back_results_in_order() -> None:
    assert run_ranks(3, f"{_CASES}:summed", 2.0, per_rank=[(1.0,), (2.0,), (3.0,)]) == [(0, 12e3), (1, 12e3), (2, 12e3)]


def test_nodes_are_told_by_the_variables_that_launchers_set() -> None:
    found = run_ranks(4, f"{_CASES}:numbers", ranks_per_node=2, group=False)
    assert [tuple(item.values()) for item in found] == [
        ("0", "0", "2", "0"),
        ("1", "1", "2", "0"),
        ("2", "0", "2", "1"),
        ("3", "1", "2", "1"),
    ]


def test_a_ranks_traceback_and_output_are_told() -> None:
    with pytest.raises(RanksFailed, match=r"rank 1: (.|\n)*as it should\n(.|\n)*said before"):
        run_ranks(2, f"{_CASES}:fails_on", 1)


def test_a_dead_rank_gives_an_error_on_the_other() -> None:
    dead, other = try_ranks(2, f"{_CASES}:dies_on", 0, timeout=30)
    assert dead.signal == signal.SIGKILL
    assert other.error is not None and "barrier" in other.error


def test_ranks_that_hang_are_ended_at_the_deadline() -> None:
    assert [outcome.signal for outcome in try_ranks(2, f"{_CASES}:hangs", timeout=0.5)] == [signal.SIGKILL] * 2


def test_no_rank_is_left() -> None:
    for pid in run_ranks(2, f"{_CASES}:pid"):
        assert pid != os.getpid()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
