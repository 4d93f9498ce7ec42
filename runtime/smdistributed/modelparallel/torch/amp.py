"""`smp.amp.GradScaler`: torch's, with overflows that all ranks agree on. For scripts with their own autocast."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from smdistributed.modelparallel.torch.optimizer import DistributedOptimizer
from smdistributed.modelparallel.torch.state import current
from trainshed_runtime.engine.fsdp2 import local


class GradScaler(torch.amp.GradScaler):
    """Give the optimizer of `step` and `unscale_` as it is, or the DistributedOptimizer around it."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        device = current().device.type
        super().__init__(device, init_scale, growth_factor, backoff_factor, growth_interval, enabled)

    def _unscale_grads_(
        self, optimizer: torch.optim.Optimizer, inv_scale: torch.Tensor, found_inf: torch.Tensor, allow_fp16: bool
    ) -> dict[torch.device, torch.Tensor]:
        inner = optimizer.optimizer if isinstance(optimizer, DistributedOptimizer) else optimizer
        model = current().model
        if model is not None:
            model.engine.synchronize()
        parameters = [parameter for group in inner.param_groups for parameter in group["params"]]
        gradients = [local(parameter.grad) for parameter in parameters if parameter.grad is not None]
        device = current().device
        overflow = found_inf.to(device, copy=True)
        filled = [gradient for gradient in gradients if gradient.numel()]
        with torch.no_grad():
            for kind in {gradient.dtype for gradient in filled}:
                some: list[Any] = [gradient for gradient in filled if gradient.dtype == kind]
                torch._amp_foreach_non_finite_check_and_unscale_(some, overflow, inv_scale.to(device))
        dist.all_reduce(overflow, op=dist.ReduceOp.MAX)
        return {device: overflow}
