"""The engine's decisions: wrap units, what stays gathered, buckets, meshes, checkpointing strategies."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the runtime extra is not installed")

from torch import nn  # noqa: E402

from trainshed_runtime.engine.buckets import join_small, one_buffer  # noqa: E402
from trainshed_runtime.engine.config import EngineConfig  # noqa: E402
from trainshed_runtime.engine.live import choose_kept  # noqa: E402
from trainshed_runtime.engine.recompute import set_checkpointing  # noqa: E402
from trainshed_runtime.engine.wrap import choose_units  # noqa: E402


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(40, 40)
        self.two = nn.Linear(40, 40)

    def forward(self, x: Any) -> Any:
        return self.two(torch.relu(self.one(x)))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.ModuleDict({"layers": nn.ModuleList(Layer() for _ in range(3))})
        self.head = nn.Linear(40, 50, bias=False)


def _names(model: nn.Module, **options: Any) -> list[str]:
    names = {id(module): name for name, module in model.named_modules()}
    return [names[id(module)] for module in choose_units(model, options.pop("limit", 1 << 40), **options)]


def test_the_members_of_lists_are_units_and_the_root_holds_the_rest() -> None:
    assert _names(Model()) == ["inside.layers.0", "inside.layers.1", "inside.layers.2", ""]


def test_types_choose_the_units_where_they_are_given() -> None:
    assert _names(Model(), blocks=[nn.Linear])[:2] == ["inside.layers.0.one", "inside.layers.0.two"]


def test_a_block_above_the_bucket_is_divided() -> None:
    assert _names(Model(), limit=2000)[:3] == ["inside.layers.0.one", "inside.layers.0.two", "inside.layers.1.one"]


def test_modules_that_share_a_parameter_with_others_are_no_units() -> None:
    model = Model()
    model.inside["layers"][1].one.weight = model.inside["layers"][2].one.weight
    assert _names(model) == ["inside.layers.0", ""]


class Unit:
    def __init__(self, elements: int, largest: int) -> None:
        self.elements, self.largest, self.kept = elements, largest, False

    def keep(self, kept: bool) -> None:
        self.kept = kept


@given(st.lists(st.integers(1, 100), min_size=1, max_size=12), st.integers(0, 800), st.integers(0, 120))
def test_what_is_kept_and_what_is_at_work_stay_below_the_cap(sizes: list[int], cap: int, persistent: int) -> None:
    units: list[Any] = [Unit(size, size) for size in sizes]
    choose_kept(units, EngineConfig(max_live_parameters=cap, persistence_threshold=persistent))
    assert all(unit.kept for unit in units if unit.largest < persistent)
    chosen = [unit for unit in units if unit.kept and unit.largest >= persistent]
    if chosen:
        kept = sum(unit.elements for unit in units if unit.kept)
        working = sum(sorted((unit.elements for unit in units if not unit.kept), reverse=True)[:2])
        assert kept + working <= cap
    if sum(sizes) <= cap:
        assert all(unit.kept for unit in units)


@given(st.lists(st.integers(0, 1 << 20), max_size=20))
def test_buckets_hold_every_unit_once_in_order(sizes: list[int]) -> None:
    assert [index for bucket in join_small(sizes) for index in bucket] == list(range(len(sizes)))


def test_neighbours_in_one_buffer_are_seen_and_gaps_are_not() -> None:
    base = torch.arange(10.0)
    flat = one_buffer([base[0:4].view(2, 2), base[4:9]])
    assert flat is not None and flat.tolist() == list(range(9))
    assert one_buffer([base[0:4], base[5:9]]) is None
    assert one_buffer([base[4:9], base[0:4]]) is None
    assert one_buffer([base[0:4], torch.zeros(2)]) is None
    assert one_buffer([torch.empty(0)]) is None


@pytest.mark.parametrize("strategy", ["none", "group_0", "group_x"])
def test_unknown_strategies_are_refused(strategy: str) -> None:
    with pytest.raises(ValueError, match="each, contiguous or group_N"):
        set_checkpointing(nn.Sequential(nn.Linear(2, 2)), strategy)


def test_layers_that_pass_tuples_are_checkpointed_as_they_are_called() -> None:
    class Two(nn.Module):
        def forward(self, a: Any, b: Any) -> Any:
            return a * b, b + 1

    class Packed(nn.Module):
        def forward(self, both: Any) -> Any:
            return both[0] * both[1], both[1] + 1

    x = torch.tensor(3.0, requires_grad=True)
    for layer, packed in ((Two, False), (Packed, True)):
        layers = nn.Sequential(layer(), layer(), layer())
        set_checkpointing(layers, "group_2", pack_args_as_tuple=packed)
        a, _ = layers(x, torch.tensor(2.0))
        (gradient,) = torch.autograd.grad(a, x)
        assert (a.item(), gradient.item()) == (3.0 * 2 * 3 * 4, 24.0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"accumulation": 0}, "accumulation is 0"),
        ({"max_live_parameters": -1}, "must not be negative"),
        ({"compute_dtype": torch.float64}, "float16, torch.bfloat16 or None"),
    ],
)
def test_impossible_configurations_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        EngineConfig(**options)
