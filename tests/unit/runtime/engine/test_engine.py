"""The engine's training equals training in one process, whatever the degree, the accumulation and the model."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.depth import DEEP, examples, size
from tests.support.ranks import run_ranks

pytest.importorskip("torch", reason="the runtime extra is not installed")

from tests.unit.runtime.engine.training import Case

_TRAINING = "tests.unit.runtime.engine.training"
_CLOSE = 1e-10
_RECORDED = [23.262595143170806, 25.555605172488953, 17.92989084649735, 19.469156488128817]


def _check(world: int, cases: list[Case], close: float = _CLOSE) -> None:
    for worst in zip(*run_ranks(world, f"{_TRAINING}:compare", cases, ranks_per_node=2 - world % 2), strict=True):
        assert max(worst) < close, (cases, worst)


def test_two_replicas_of_two_over_an_accumulation_with_all_kinds_of_parameters() -> None:
    plain = Case(degree=2, accumulation=2, clip=0.1, tied=True, conditional=True)
    _check(4, [plain, Case(degree=2, accumulation=3, frozen=True, twice=True, optimizer="sgd", clip=0.5, live=0)])


def test_uneven_shards_and_few_live_parameters_in_small_buckets() -> None:
    _check(3, [Case(degree=3, hidden=15, accumulation=2, live=4500, bucket=300, clip=0.2)])


def test_degree_one_is_plain_data_parallelism() -> None:
    _check(2, [Case(degree=1, accumulation=2, conditional=True, persistence=50, steps=2, attached=False)])


def test_float32_stays_close_over_many_steps() -> None:
    """SGD's gradients and weights; AdamW's weights are further away, as it divides by what is nearly nothing."""
    sgd = Case(degree=2, accumulation=2, optimizer="sgd", steps=size(5, 20), dtype="float32", clip=0.5)
    world = size(2, 4)
    _check(world, [sgd], 1e-5)
    adamw = Case(degree=2, steps=size(8, 20), dtype="float32")
    [alone] = run_ranks(1, f"{_TRAINING}:alone_losses", adamw, world)
    for found in run_ranks(world, f"{_TRAINING}:losses", adamw):
        assert found == pytest.approx(alone, rel=1e-5)


def test_losses_are_those_that_were_recorded() -> None:
    case = Case(degree=2, accumulation=2, clip=0.1, tied=True, steps=2)
    for found in run_ranks(4, f"{_TRAINING}:losses", case):
        assert found == pytest.approx(_RECORDED, rel=1e-9)


@pytest.mark.gpu
def test_training_on_devices_equals_the_one_process() -> None:
    import torch

    count = torch.cuda.device_count()
    if count == 0:
        pytest.skip("there is no CUDA device")
    cases = [Case(degree=count, accumulation=2, clip=0.1), Case(degree=1, accumulation=2, conditional=True, live=0)]
    options = {"group": False, "env": {"TRAINSHED_TEST_CUDA": "1"}}
    for found in run_ranks(count, f"{_TRAINING}:compare_on_cuda", cases, **options):
        assert max(found) < _CLOSE


@st.composite
def _worlds(draw: st.DrawFn) -> tuple[int, list[Case]]:
    world = draw(st.integers(1, 8 if DEEP else 4))
    degrees = [degree for degree in range(1, world + 1) if world % degree == 0]
    cases = st.builds(
        Case,
        degree=st.sampled_from(degrees),
        accumulation=st.integers(1, 3),
        steps=st.just(2),
        hidden=st.sampled_from([7, 15, 16]),
        layers=st.integers(1, 3),
        clip=st.sampled_from([0.0, 0.05, 1.0]),
        optimizer=st.sampled_from(["sgd", "adamw"]),
        tied=st.booleans(),
        frozen=st.booleans(),
        twice=st.booleans(),
        conditional=st.booleans(),
        live=st.sampled_from([0, 4500, 1 << 30]),
        persistence=st.sampled_from([0, 100]),
        bucket=st.sampled_from([1, 200, 1 << 29]),
        overlap=st.booleans(),
    )
    return world, draw(st.lists(cases, min_size=1, max_size=1))


@settings(max_examples=examples(3))
@given(_worlds())
def test_any_training_equals_the_one_process(drawn: tuple[int, list[Case]]) -> None:
    _check(*drawn)


def test_a_rerun_gives_the_same_bits_on_all_ranks() -> None:
    case = Case(degree=2, accumulation=2, clip=0.1, steps=1)
    found = [print_ for _ in range(2) for print_ in run_ranks(4, f"{_TRAINING}:fingerprint", case)]
    assert len(set(found)) == 1


@pytest.mark.parametrize("what", ["step_early", "zero_in_the_middle", "evaluate_between"])
def test_what_is_done_between_micro_steps_is_right(what: str) -> None:
    assert max(run_ranks(2, f"{_TRAINING}:{what}", Case(degree=1, conditional=True))) < _CLOSE


def test_errors_are_forgotten_and_losses_of_a_part_are_seen() -> None:
    assert max(run_ranks(2, f"{_TRAINING}:parts_and_errors", Case(degree=1))) < _CLOSE
    assert max(run_ranks(2, f"{_TRAINING}:parts_and_errors", Case(degree=2, live=0))) < _CLOSE


def test_clipping_in_the_middle_of_an_accumulation_is_refused() -> None:
    for said in run_ranks(2, f"{_TRAINING}:ask_in_the_middle", Case(degree=1)):
        assert "1 of 2 backward passes are done" in said
