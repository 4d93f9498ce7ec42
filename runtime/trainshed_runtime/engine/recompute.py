"""Activation checkpointing: layers that keep their inputs alone and run forward again during the backward pass.

Invariant: module names, parameters and state dicts stay as they were, since only `forward` is exchanged. It works on
modules that the engine has sharded already: what runs again finds its parameters gathered by the hooks outside of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from trainshed_runtime.engine.offload import ActivationOffload

_GROUP = re.compile(r"group_([1-9][0-9]*)")


def set_checkpointing(
    module: nn.Module,
    strategy: str = "each",
    preserve_rng_state: bool = True,
    pack_args_as_tuple: bool = False,
    offload: ActivationOffload | None = None,
) -> None:
    """Checkpoint a module, or the layers of an nn.Sequential or nn.ModuleList.

    `strategy` is for nn.Sequential: `each` layer by itself, `contiguous` (all together) or `group_N` (N together).
    `pack_args_as_tuple`: a tuple that a layer returns is the next layer's one argument, not its arguments.
    """
    count = _group_size(strategy, module)
    run = _Checkpointed(preserve_rng_state, offload)
    if isinstance(module, nn.ModuleList):
        if count != 1:
            raise ValueError(
                f"the strategy {strategy!r} needs an nn.Sequential; an nn.ModuleList has no order of calls"
            )
        for layer in module:
            run.exchange(layer)
    elif not isinstance(module, nn.Sequential):
        run.exchange(module)
    elif count == 1 and not pack_args_as_tuple and strategy == "each":
        for layer in module:
            run.exchange(layer)
    else:
        module.forward = _sequential(list(module), count, run, pack_args_as_tuple)  # type: ignore[method-assign]


def _group_size(strategy: str, module: nn.Module) -> int:
    if strategy == "each":
        return 1
    if strategy == "contiguous":
        return max(1, len(module) if isinstance(module, nn.Sequential) else 1)
    found = _GROUP.fullmatch(strategy)
    if found is None:
        raise ValueError(f"the strategy is {strategy!r}; it must be each, contiguous or group_N with N from 1")
    return int(found[1])


class _Checkpointed:
    def __init__(self, preserve_rng_state: bool, offload: ActivationOffload | None) -> None:
        self._preserve = preserve_rng_state
        self._offload = offload

    def exchange(self, module: nn.Module) -> None:
        original = module.forward
        if getattr(original, "_trainshed_checkpointed", False):
            return

        def forward(*args: Any, **kwargs: Any) -> Any:
            return self.call(original, *args, **kwargs)

        forward._trainshed_checkpointed = True  # type: ignore[attr-defined]
        module.forward = forward  # type: ignore[method-assign]

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return function(*args, **kwargs)
        with self._offload.layer() if self._offload is not None else nullcontext():
            return checkpoint(function, *args, use_reentrant=False, preserve_rng_state=self._preserve, **kwargs)


def _sequential(layers: Sequence[nn.Module], count: int, run: _Checkpointed, packed: bool) -> Callable[..., Any]:
    groups = [list(layers[start : start + count]) for start in range(0, len(layers), count)]

    def forward(*args: Any) -> Any:
        value: Any = args if len(args) != 1 else args[0]
        for group in groups:
            parts = tuple(_parts(value))
            one = not isinstance(value, tuple)
            value = run.call(lambda *items, g=group, o=one: _through(g, items, o, packed), *parts)
        return value

    return forward


def _parts(value: Any) -> Iterator[Any]:
    """Tensors are the checkpoint's own arguments, so that it saves them as inputs."""
    yield from value if isinstance(value, tuple) else (value,)


def _through(group: Sequence[nn.Module], items: tuple[Any, ...], one: bool, packed: bool) -> Any:
    value: Any = items[0] if one else items
    for layer in group:
        value = layer(*value) if isinstance(value, tuple) and not packed else layer(value)
    return value
