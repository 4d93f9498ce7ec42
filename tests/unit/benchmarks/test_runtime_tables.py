"""The figures that the runtime's benchmark derives from what it measured."""

import pytest

from benchmarks.runtime import Series, efficiencies, floor, size_of, table
from benchmarks.runtime_cluster import Measured
from benchmarks.runtime_shape import Shape
from tests.support.ranks import run_ranks


@pytest.mark.parametrize(
    ("mode", "two", "four"),
    [
        ("fsdp", 12.0, 14.0),
        ("fsdp_ring", 9.0, 10.5),
        ("hybrid", 4.0, 6.0),
        ("ours", 1.0, 1.5),
        ("ddp", 1.5, 1.75),
        ("ddp_smddp", 1.0, 1.5),
    ],
)
def test_floors_are_what_the_schemes_have_to_send(mode: str, two: float, four: float) -> None:
    assert floor(mode, 2, 2, 4) == two
    assert floor(mode, 4, 2, 4) == four
    assert floor(mode, 1, 2, 4) == 0.0


@pytest.mark.parametrize("mlp", [False, True])
def test_the_models_size_is_that_of_its_parameters(mlp: bool) -> None:
    shape = Shape(width=48, layers=2, heads=2, vocabulary=100, sequence=16, mlp=mlp)
    assert run_ranks(1, "benchmarks.runtime_model:parameter_bytes", shape, group=False) == [size_of(shape)]


def series(name: str, seconds: list[float], nodes: int = 2, part: str = "training") -> Series:
    found = Series(part, name, nodes, 2, 200, 100.0, floor(name, nodes, 2, 4), 1000)
    found.measured = [Measured(one, 1.0, 401, 401, 0.0) for one in seconds]
    return found


def test_the_table_has_medians_spreads_bytes_over_the_floor_and_ratios() -> None:
    _, hybrid, ours = table([series("hybrid", [6.0, 5.0, 10.0]), series("ours", [2.0, 3.0, 2.5])], "training")
    assert [hybrid.split()[place] for place in (5, 6, 7)] == ["6.00", "83%", "167"]
    assert hybrid.split()[-4:] == ["4.0100", "4.000", "1.002", "2.40×"]
    assert ours.split()[-1] == "1.00×"


def test_weak_scaling_is_the_time_on_one_node_over_that_on_several() -> None:
    alone, four = series("ours", [1.0], 1, "scaling"), series("ours", [1.25], 4, "scaling")
    assert efficiencies([alone, four]) == ["ours: 80.0% on 4 nodes, 3.20× one node"]
