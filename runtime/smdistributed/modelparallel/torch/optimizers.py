"""Optimizers under the library's names: torch's own, fused where the device has the kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import optim


class FusedAdam(optim.AdamW):
    """AdamW in one kernel on CUDA. With `adam_w_mode=False`: Adam, whose decay goes into the gradient."""

    def __init__(self, params: Any, lr: float = 1e-3, adam_w_mode: bool = True, **options: Any) -> None:
        options.setdefault("fused", torch.cuda.is_available())
        super().__init__(params, lr=lr, **options)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = adam_w_mode


def __getattr__(name: str) -> Any:
    if name.startswith("Fused"):
        raise AttributeError(f"smp.optimizers has no {name}; use FusedAdam or an optimizer of torch.optim")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
