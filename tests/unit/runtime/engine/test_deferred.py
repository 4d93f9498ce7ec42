"""Weights of delayed modules are those of modules made at once, for every degree."""

from __future__ import annotations

import pytest

from tests.support.ranks import run_ranks

pytest.importorskip("torch", reason="the runtime extra is not installed")

_CREATIONS = "tests.unit.runtime.engine.creations"


def test_a_replay_gives_the_weights_of_plain_torch_for_every_degree() -> None:
    [plain] = run_ranks(1, f"{_CREATIONS}:whole", "at once")
    assert run_ranks(1, f"{_CREATIONS}:whole", "replay") == [plain]
    for found in run_ranks(2, f"{_CREATIONS}:sharded", "replay", [1, 2]):
        assert found == [plain, plain]


def test_weights_seeded_by_parameter_do_not_depend_on_the_degree() -> None:
    [alone] = run_ranks(1, f"{_CREATIONS}:whole", "per_parameter")
    for found in run_ranks(3, f"{_CREATIONS}:sharded", "per_parameter", [1, 3]):
        assert found == [alone, alone]
    assert alone["layers.0.weight"] != alone["layers.1.weight"]
    assert alone["words.weight"][3] == [0.0] * 6
