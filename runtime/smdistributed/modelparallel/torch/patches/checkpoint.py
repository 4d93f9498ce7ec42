"""Activation checkpointing of calls, in place of torch.utils.checkpoint's two functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.utils.checkpoint
from torch import nn

from smdistributed.modelparallel.torch.creation import set_activation_checkpointing


def checkpoint(function: Callable[..., Any], *args: Any, preserve_rng_state: bool = True, **kwargs: Any) -> Any:
    """`function(*args)`, which runs again in the backward pass. Works on sharded modules."""
    return torch.utils.checkpoint.checkpoint(
        function, *args, use_reentrant=False, preserve_rng_state=preserve_rng_state, **kwargs
    )


def checkpoint_sequential(
    sequential: nn.Sequential,
    input: Any,
    strategy: str = "each",
    preserve_rng_state: bool = True,
    pack_args_as_tuple: bool = False,
) -> Any:
    """Run a sequence with its layers checkpointed by `strategy`: each, contiguous or group_N."""
    if not isinstance(sequential, nn.Sequential):
        raise TypeError(f"checkpoint_sequential needs an nn.Sequential, not a {type(sequential).__name__}")
    if not getattr(sequential, "_smp_strategy", None):
        set_activation_checkpointing(sequential, preserve_rng_state, pack_args_as_tuple, strategy)
        sequential._smp_strategy = strategy  # type: ignore[assignment]
    return sequential(*input) if isinstance(input, tuple) and not pack_args_as_tuple else sequential(input)
