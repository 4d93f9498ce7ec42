"""Loss scales follow the overflows as their window, shift and hysteresis say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="the runtime extra is not installed")

from trainshed_runtime.engine.scaler import DynamicLossScale, LossScale


def _scales(scale: DynamicLossScale, overflows: str) -> list[float]:
    found = []
    for mark in overflows:
        scale.update(mark == "x")
        found.append(scale.scale)
    return found


def test_an_overflow_halves_and_a_window_without_one_doubles() -> None:
    assert _scales(DynamicLossScale(16, scale_window=2), "x..x..") == [8, 8, 16, 8, 8, 16]


def test_the_scale_never_falls_below_its_least() -> None:
    assert _scales(DynamicLossScale(4, min_scale=2), "xxx") == [2, 2, 2]


def test_a_delayed_shift_bears_all_overflows_of_a_window_but_the_last() -> None:
    assert _scales(DynamicLossScale(16, scale_window=10, delayed_shift=2), "x.x.") == [16, 16, 8, 8]


def test_consecutive_hysteresis_forgets_overflows_at_a_good_step() -> None:
    scale = DynamicLossScale(16, scale_window=10, delayed_shift=2, consecutive_hysteresis=True)
    assert _scales(scale, "x.x.xx") == [16, 16, 16, 16, 16, 8]


@given(st.text("x.", max_size=40), st.integers(1, 5), st.integers(1, 3), st.booleans())
def test_a_restored_scale_goes_on_as_if_it_had_not_stopped(
    overflows: str, window: int, shift: int, consecutive: bool
) -> None:
    def make() -> DynamicLossScale:
        return DynamicLossScale(2.0**8, 2.0, window, 1.0, shift, consecutive)

    whole, first, second = make(), make(), make()
    half = len(overflows) // 2
    _scales(first, overflows[:half])
    second.load_state_dict(first.state_dict())
    assert _scales(whole, overflows)[half:] == _scales(second, overflows[half:])
    assert whole.scale >= 1.0


def test_a_static_scale_stays() -> None:
    scale = LossScale(8.0)
    scale.update(True)
    assert scale.scale == 8.0


@pytest.mark.parametrize(
    ("options", "said"),
    [({"init_scale": 0}, "above 0"), ({"scale_factor": 1}, "above 1"), ({"scale_window": 0}, "at least 1")],
)
def test_impossible_scales_are_refused(options: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        DynamicLossScale(**options)  # type: ignore[arg-type]
