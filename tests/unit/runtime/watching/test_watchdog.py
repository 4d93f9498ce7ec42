"""A rank that hangs or dies gives every other one an error that names it."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.support.ranks import run_ranks, try_ranks

if find_spec("torch") is None:
    pytest.skip("the runtime extra is not installed", allow_module_level=True)

_CASES = "tests.unit.runtime.watching.cases"


def test_a_hung_rank_is_named_to_every_other() -> None:
    first, second, _ = run_ranks(3, f"{_CASES}:hung", 2.0)
    for rank, found in ((0, first), (1, second)):
        assert len(found["told"]) == 2, found
        for (words, ranks, seconds), name in zip(found["told"], ("ours", "gloo's"), strict=True):
            assert ranks == (2,)
            assert f"rank {rank} waited" in words and f"gradients by {name}" in words
            assert "rank 2 has not come since 'the first, to which all come'" in words
            assert seconds < 20
        assert found["printed"].count("[trainshed] rank") >= 1


def test_a_script_of_smp_is_watched_where_its_environment_asks() -> None:
    env = {"TRAINSHED_WATCHDOG_SECONDS": "2", "TRAINSHED_TELEMETRY": "1"}
    outcomes = try_ranks(2, f"{_CASES}:script", 1, env=env)
    assert all(outcome.ok for outcome in outcomes), outcomes
    assert outcomes[0].value["ranks"] == (1,)
    assert "rank 1 has not come since 'an optimizer step'" in outcomes[0].value["told"]
    assert "in 'a forward pass'" in outcomes[0].value["told"], "a gather that failed in the background is not swallowed"
    assert [line.split()[1] for line in outcomes[0].output.splitlines() if "tokens_per_second=" in line] == [
        "step=1",
        "step=2",
    ]


def test_a_dead_rank_is_named_and_a_wait_without_end_ends() -> None:
    alive, killed = try_ranks(2, f"{_CASES}:dead", 2.0, grace=40)
    assert killed.signal == 9
    assert "told: " in alive.output and "(1,)" in alive.output
    assert "rank 1 has not" in alive.output
    assert "waited 2." in alive.output and "'the third'" in alive.output
    assert "cannot be interrupted and ends" in alive.output
    assert "in dead" in alive.output, "the stacks say where it hung"
    assert "exit code 75" in str(alive.error)
