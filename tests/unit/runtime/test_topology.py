"""Ranks and nodes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed_runtime.topology import Topology


@given(nodes=st.integers(1, 9), local=st.integers(1, 9))
def test_ranks_are_numbered_node_by_node(nodes: int, local: int) -> None:
    topology = Topology(nodes * local, local)
    assert topology.nodes == nodes
    places = [(topology.node_of(rank), topology.local_rank_of(rank)) for rank in range(nodes * local)]
    assert places == [(node, place) for node in range(nodes) for place in range(local)]
    grid = topology.grid(range(nodes * local))
    assert (grid is None) == (nodes == 1 or local == 1)
    if grid is not None:
        assert [len(row) for row in grid] == [local] * nodes
        assert [rank for row in grid for rank in row] == list(range(nodes * local))


def test_groups() -> None:
    topology = Topology(8, 4)
    assert not topology.spans_nodes([0, 3])
    assert topology.spans_nodes([3, 4])
    assert topology.grid([0, 2, 5, 7]) == ((0, 2), (5, 7))
    assert topology.grid([0, 1, 2, 4]) is None, "three on one node, one on the other"
    assert topology.grid([1, 5]) is None, "one on each node: there is no hop inside a node"
    assert topology.grid([0, 4, 1, 5]) is None, "not in the order of nodes"
    assert topology.grid([4, 5, 0, 1]) is None
    with pytest.raises(ValueError, match="rank 8"):
        topology.spans_nodes([8])


def test_nodes_of_different_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="same number of ranks"):
        Topology(6, 4)
    with pytest.raises(ValueError, match="no rank"):
        Topology(0, 1)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}, (8, 4)),
        ({"OMPI_COMM_WORLD_SIZE": "6", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, (6, 2)),
        ({"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8", "TRAINSHED_RANKS_PER_NODE": "2"}, (8, 2)),
        ({"WORLD_SIZE": "8", "SM_HOSTS": '["algo-1", "algo-2"]'}, (8, 4)),
        ({"WORLD_SIZE": "7", "SM_HOSTS": '["algo-1", "algo-2"]'}, (7, 7)),
        ({"WORLD_SIZE": "6", "LOCAL_WORLD_SIZE": "4"}, (6, 6)),
        ({"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "two", "SM_HOSTS": "not JSON"}, (4, 4)),
        ({}, (1, 1)),
    ],
)
def test_what_launchers_tell(variables: dict[str, str], expected: tuple[int, int]) -> None:
    found = Topology.from_environment(environment=variables)
    assert (found.world_size, found.ranks_per_node) == expected


def test_a_given_world_stands_in_front_of_the_variables() -> None:
    found = Topology.from_environment(4, {"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "2"})
    assert (found.world_size, found.ranks_per_node) == (4, 2)
