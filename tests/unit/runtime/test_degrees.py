"""Valid degrees of a world, and the sentence that proposes others."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.depth import examples
from trainshed_runtime.degrees import InvalidDegree, check_degree, is_even, nearest_degrees, valid_degrees

worlds = st.integers(1, 4096)


@settings(max_examples=examples(60), deadline=None)
@given(worlds)
def test_valid_degrees_are_the_divisors(world: int) -> None:
    assert valid_degrees(world) == [number for number in range(1, world + 1) if world % number == 0]


@settings(max_examples=examples(60), deadline=None)
@given(worlds, st.integers(-3, 5000), st.sampled_from([None, 1, 2, 8]))
def test_a_degree_passes_or_its_refusal_names_degrees_that_pass(world: int, degree: int, per_node: int | None) -> None:
    if degree in valid_degrees(world):
        assert check_degree(degree, world, per_node) == degree
        return
    with pytest.raises(InvalidDegree) as refused:
        check_degree(degree, world, per_node)
    assert refused.value.proposals
    assert len(refused.value.proposals) <= 4
    for proposal in refused.value.proposals:
        assert check_degree(proposal, world, per_node) == proposal
        assert str(proposal) in str(refused.value)
    larger = [number for number in valid_degrees(world) if number > degree >= 1]
    if larger:
        assert larger[0] in refused.value.proposals, "the next larger one, which holds what was asked for, is offered"


@pytest.mark.parametrize("degree", [True, 2.0, "8", None, 0, -8])
def test_only_positive_whole_numbers_are_degrees(degree: object) -> None:
    with pytest.raises(InvalidDegree, match="must be a whole number from 1"):
        check_degree(degree, 16)


def test_the_sentences() -> None:
    with pytest.raises(InvalidDegree) as refused:
        check_degree(12, 16, 8, "2 instances of 8 processes")
    assert str(refused.value) == (
        "sharded_data_parallel_degree 12 does not divide the number of ranks: "
        "2 instances of 8 processes make 16 ranks; use 4, 8 or 16."
    )
    with pytest.raises(InvalidDegree, match="32 is more than there are ranks: the world has 4 ranks; use 1, 2 or 4"):
        check_degree(32, 4)
    with pytest.raises(InvalidDegree, match="the world has 1 rank; only 1 is possible"):
        check_degree(2, 1)


def test_whole_nodes_are_preferred() -> None:
    assert 8 in nearest_degrees(24, 5, 8)
    assert is_even(16, 8)
    assert is_even(4, 8)
    assert not is_even(12, 8)
    assert not is_even(3, 8)


def test_torch_is_not_imported() -> None:
    code = "import sys, trainshed_runtime.degrees; assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
