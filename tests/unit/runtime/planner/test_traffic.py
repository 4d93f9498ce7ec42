"""Bytes of a step: the closed forms, against counted rings, against the formulas and against measured figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.depth import examples
from trainshed_runtime.degrees import is_even, valid_degrees
from trainshed_runtime.planner.traffic import (
    Scheme,
    counted_exchange,
    data_parallel,
    full_shard,
    hybrid_shard,
    mics,
    partition_exchange,
    replica_exchange,
    step_traffic,
)
from trainshed_runtime.topology import Topology

TWO, FOUR = Topology(4, 2), Topology(8, 2)
MEASURED_BYTES = 55.27e6
"""Parameters of the model in the measured runs: 13.8 M in fp32, accumulation 4, two ranks on a node."""

CASES = [  # scheme, topology, the formula's multiple of the parameters' bytes, measured (None: was not)
    (full_shard(4), TWO, 9.0, None),
    (full_shard(8), FOUR, 10.5, None),
    (full_shard(4, ring_scatter=False), TWO, 12.0, 12.032),
    (full_shard(8, ring_scatter=False), FOUR, 14.0, 14.047),
    (replace(full_shard(4), hierarchical=True), TWO, 6.0, 6.015),
    (replace(full_shard(8), hierarchical=True), FOUR, 9.0, None),
    (hybrid_shard(2), TWO, 4.0, 4.009),
    (hybrid_shard(2), FOUR, 6.0, 6.016),
    (mics(2, hierarchical=False), TWO, 1.0, 1.002),
    (mics(2, hierarchical=False), FOUR, 1.5, 1.504),
    (data_parallel(), TWO, 1.5, 1.503),
    (data_parallel(), FOUR, 1.75, 1.754),
    (data_parallel(hierarchical=True), TWO, 1.0, 1.002),
    (data_parallel(hierarchical=True), FOUR, 1.5, None),
    (replace(full_shard(4, ring_scatter=False), gathers=1), TWO, 9.0, 9.02),
    (replace(full_shard(4, ring_scatter=False), scatter="last"), TWO, 7.5, 7.52),
    (replace(mics(4, hierarchical=False), ring_scatter=False), FOUR, 12.5, 12.531),
    (mics(4), FOUR, 6.5, 6.517),
]


@pytest.mark.parametrize(("scheme", "topology", "formula", "measured"), CASES)
def test_bytes_of_the_known_schemes(scheme: Scheme, topology: Topology, formula: float, measured: float | None) -> None:
    sent = step_traffic(scheme, topology, 4, MEASURED_BYTES).total.node
    assert sent == pytest.approx(formula * MEASURED_BYTES)
    if measured is not None:
        assert sent <= measured * MEASURED_BYTES <= 1.005 * sent, "the wire adds headers, half a percent at most"


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(1, 6), st.integers(1, 8), st.data())
def test_closed_forms_equal_counted_rings(nodes: int, width: int, data: st.DataObject) -> None:
    topology = Topology(nodes * width, width)
    world = topology.world_size
    degree = data.draw(st.sampled_from([each for each in valid_degrees(world) if is_even(each, width)]))
    for hierarchical in (False, True):
        groups = [range(first, first + degree) for first in range(0, world, degree)]
        copies = [range(place, world, degree) for place in range(degree)]
        for closed, counted in (
            (partition_exchange(degree, topology, hierarchical), counted_exchange(groups, topology, 1, hierarchical)),
            (
                replica_exchange(degree, topology, hierarchical),
                counted_exchange(copies, topology, 1 / degree, hierarchical),
            ),
        ):
            assert (closed.node, closed.rank) == pytest.approx((counted.node, counted.rank))


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(1, 6), st.integers(1, 8), st.integers(1, 8), st.data())
def test_two_hops_against_full_and_hybrid_sharding(nodes: int, width: int, steps: int, data: st.DataObject) -> None:
    topology = Topology(nodes * width, width)
    degree = data.draw(st.sampled_from([each for each in valid_degrees(nodes * width) if is_even(each, width)]))
    ours = step_traffic(mics(degree, hierarchical=False), topology, steps, 1e9).total.node
    if degree <= width:
        assert ours <= step_traffic(full_shard(nodes * width), topology, steps, 1e9).total.node * (1 + 1e-12)
    assert step_traffic(mics(degree), topology, steps, 1e9).total.node <= ours * (1 + 1e-12)
    hybrid = step_traffic(hybrid_shard(degree), topology, steps, 1e9).total.node
    assert hybrid >= ours * (1 - 1e-12)
    if steps == 1:
        assert hybrid == pytest.approx(ours)


def test_groups_that_straddle_nodes_unevenly_are_counted() -> None:
    links = partition_exchange(3, Topology(12, 4), hierarchical=True)
    assert links.node == pytest.approx(2 * 2 / 3), "the middle node has an edge of two groups that leave it"
    with pytest.raises(ValueError, match="5 does not divide 12"):
        step_traffic(mics(5), Topology(12, 4), 1, 1)
