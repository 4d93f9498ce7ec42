"""Loss scales for float16: how the scale follows the overflows.

Invariant: every rank is told the same overflows (`Engine.unscale` agrees on them), so every rank has the same scale.
"""

from __future__ import annotations

from typing import Any


class LossScale:
    """A scale that stays as it is; `update` only counts."""

    def __init__(self, scale: float = 1.0) -> None:
        if not scale > 0:
            raise ValueError(f"the loss scale is {scale}; it must be above 0")
        self.scale = float(scale)
        self.steps = 0

    def update(self, overflow: bool) -> None:
        """Call after each optimizer step, with whether it was skipped."""
        self.steps += 1

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the state of an equal scale."""
        unknown = state.keys() - vars(self).keys()
        if unknown:
            raise ValueError(f"the saved loss scale has {', '.join(sorted(unknown))}, which this one has not")
        vars(self).update(state)


class DynamicLossScale(LossScale):
    """Divided by `scale_factor` at an overflow, multiplied by it after `scale_window` steps without one.

    `delayed_shift`: of how many overflows only the last shrinks the scale. The count of them begins anew with each step
    without overflow where `consecutive_hysteresis` is set, else with each window. Never below `min_scale`.
    """

    def __init__(
        self,
        init_scale: float = 2.0**32,
        scale_factor: float = 2.0,
        scale_window: int = 1000,
        min_scale: float = 1.0,
        delayed_shift: int = 1,
        consecutive_hysteresis: bool = False,
    ) -> None:
        super().__init__(init_scale)
        if scale_factor <= 1:
            raise ValueError(f"scale_factor is {scale_factor}; it must be above 1")
        for name, value in (("scale_window", scale_window), ("delayed_shift", delayed_shift)):
            if value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        self.factor = float(scale_factor)
        self.window = int(scale_window)
        self.least = float(min_scale)
        self.shift = int(delayed_shift)
        self.consecutive = bool(consecutive_hysteresis)
        self.patience = self.shift
        self.last_overflow = -1

    def update(self, overflow: bool) -> None:
        """See LossScale."""
        if overflow:
            if self.patience <= 1:
                self.scale = max(self.scale / self.factor, self.least)
            else:
                self.patience -= 1
            self.last_overflow = self.steps
        else:
            if self.consecutive:
                self.patience = self.shift
            if (self.steps - self.last_overflow) % self.window == 0:
                self.patience = self.shift
                self.scale *= self.factor
        super().update(overflow)
