"""`smp.DistributedOptimizer`: clipping, loss scales and the accumulation's boundary inside `step`.

Invariant: a step either happens on every rank or on none: under fp16 all ranks agree on an overflow before the first of
them changes a weight.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from smdistributed.modelparallel.torch.state import current
from smdistributed.modelparallel.torch.watching import watch
from trainshed_runtime.engine import Engine
from trainshed_runtime.engine.fsdp2 import local
from trainshed_runtime.engine.scaler import DynamicLossScale, LossScale

logger = logging.getLogger("smdistributed.modelparallel")


class DistributedOptimizer(Optimizer):
    """Wrap an optimizer of a DistributedModel's parameters.

    The loss is scaled under fp16 alone: by `static_loss_scale`, or with `dynamic_loss_scale` by one that follows the
    overflows. `dynamic_loss_args`: init_scale, scale_factor, scale_window, min_scale, delayed_shift,
    consecutive_hysteresis; they may be given one by one, too.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        static_loss_scale: float | None = 1.0,
        dynamic_loss_scale: bool = False,
        dynamic_loss_args: dict[str, Any] | None = None,
        **more: Any,
    ) -> None:
        state = current()
        if state.model is None:
            raise RuntimeError("make the DistributedModel first, then the optimizer of its parameters")
        self.optimizer = optimizer
        self._engine: Engine = state.model.engine
        self._check_parameters()
        self.scales = state.settings.half == "fp16"
        """Whether losses are scaled."""
        self._clip = float(state.settings["sdp_gradient_clipping"]) if state.settings.sharded else 0.0
        arguments = {**(dynamic_loss_args or {}), **more}
        self._scale = DynamicLossScale(**arguments) if dynamic_loss_scale else LossScale(static_loss_scale or 1.0)
        self.overflow = False
        """Whether the last step was left out, since a gradient was not finite."""
        self._norm: float | None = None
        self._engine.attach(optimizer)
        state.optimizer = self
        self.watchdog = watch(state.model, self)

    def _check_parameters(self) -> None:
        own = {id(parameter) for parameter in self._engine.parameters()}
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) not in own:
                    raise ValueError(
                        "the optimizer holds a parameter that is not the DistributedModel's: it was made of the "
                        "module's parameters before DistributedModel sharded them. Make it afterwards, of "
                        "model.parameters()."
                    )

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        return self.optimizer.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.optimizer.param_groups = groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        return self.optimizer.state

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        return self.optimizer.defaults

    @property
    def loss_scale(self) -> float:
        """What losses are multiplied by; 1 without fp16."""
        return self._scale.scale if self.scales else 1.0

    @property
    def fp16_groups(self) -> list[list[nn.Parameter]]:
        """The parameters of each group; each has its whole shape as `ds_shape`."""
        return [list(group["params"]) for group in self.optimizer.param_groups]

    def clip_master_grads(self, max_norm: float, norm_type: float = 2.0) -> float:
        """Clip the gradients of the master weights; returns their norm before, or -1 where one is not finite."""
        if norm_type != 2.0:
            raise ValueError(f"norm_type is {norm_type}; gradients are clipped by their 2-norm")
        self._engine.synchronize()
        if self._norm is not None:
            norm = self._engine.clip(max_norm)
        else:
            norm = self._norm = self._engine.unscale(self.loss_scale, max_norm, agree=self.scales)
        return norm if math.isfinite(norm) else -1.0

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Clip, and step; under fp16 leave the step out where a gradient is not finite, and adapt the scale."""
        if closure is not None and (self.scales or self._clip):
            raise ValueError("step(closure) cannot scale or clip what the closure computes; compute gradients before")
        result = None
        if closure is None:
            self._engine.synchronize()
            norm = self._norm
            if norm is None and (self.scales or self._clip):
                norm = self._engine.unscale(self.loss_scale, self._clip or None, agree=self.scales)
            elif norm is not None and self._clip and math.isfinite(norm):
                self._engine.clip(self._clip)
            self._norm = None
            self.overflow = self.scales and norm is not None and not math.isfinite(norm)
        if self.overflow:
            self._left_out()
        else:
            result = self.optimizer.step(closure)
        if self.scales:
            self._scale.update(self.overflow)
        return result

    def _left_out(self) -> None:
        for parameter in self._engine.parameters():
            parameter.grad = None
        if self._engine.mesh.rank == 0:
            logger.warning("a gradient is not finite at loss scale %g: the step is left out", self._scale.scale)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, and an accumulation that has begun."""
        self._norm = None
        if set_to_none:
            self._engine.discard()
        else:
            self.optimizer.zero_grad(set_to_none=False)

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's with whole tensors in host memory, and the loss scale; a collective call."""
        return self._state(lambda value: value.full_tensor().cpu() if hasattr(value, "full_tensor") else value.cpu())

    def local_state_dict(self) -> dict[str, Any]:
        """This rank's shards of it; says so by the key `_smp_is_partial`."""
        return {**self._state(lambda value: local(value)), "_smp_is_partial": True}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` (of any degree) or `local_state_dict` (of this degree) gave."""
        given = dict(state_dict)
        partial = bool(given.pop("_smp_is_partial", False))
        scale = given.pop("loss_scale", None)
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        given["state"] = {
            index: {name: _sharded(parameters[index], value, partial) for name, value in values.items()}
            for index, values in given["state"].items()
        }
        self.optimizer.load_state_dict(given)
        if scale is not None:
            self._scale.load_state_dict(scale)

    def _state(self, convert: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, Any]:
        found = self.optimizer.state_dict()
        state = {
            index: {
                name: convert(value) if isinstance(value, torch.Tensor) else value for name, value in values.items()
            }
            for index, values in found["state"].items()
        }
        return {**found, "state": state, "loss_scale": self._scale.state_dict()}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self.optimizer.add_param_group(param_group)
        self._check_parameters()

    def __repr__(self) -> str:
        return f"DistributedOptimizer({self.optimizer!r})"


def _sharded(parameter: nn.Parameter, value: Any, partial: bool) -> Any:
    """A state's tensor as a shard laid out like its parameter; numbers and scalars stay."""
    from torch.distributed.tensor import DTensor

    from trainshed_runtime.engine.fsdp2 import like

    if not (isinstance(value, torch.Tensor) and isinstance(parameter, DTensor)) or value.dim() == 0:
        return value
    own = local(parameter)
    if not partial and value.shape == parameter.shape:
        parts = value.chunk(parameter.device_mesh.size(), 0)
        place = parameter.device_mesh.get_local_rank()
        value = parts[place] if place < len(parts) else value[:0]
    if value.shape != own.shape:
        raise RuntimeError(
            f"an optimizer state has shape {tuple(value.shape)}; this rank's part has {tuple(own.shape)}"
        )
    return like(parameter, value.to(own.device, copy=True))
