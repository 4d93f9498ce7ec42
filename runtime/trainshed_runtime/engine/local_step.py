"""Optimizer steps on this rank's shards as plain tensors, which costs a tenth of stepping on DTensors.

Invariant: between steps the optimizer holds DTensors, in its groups and in its state, as checkpoints and users expect;
during a step of an optimizer that works element by element it holds the shards themselves, which share their memory.
Optimizers that look at whole tensors (norms, factored moments) step on DTensors, and so do steps with a closure.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from typing import Any

import torch
from torch import nn, optim
from torch.distributed.tensor import DTensor

from trainshed_runtime.engine.fsdp2 import like, local

_ELEMENTWISE = (
    *(optim.SGD, optim.Adam, optim.AdamW, optim.NAdam, optim.RAdam, optim.Adamax),
    *(optim.Adagrad, optim.Adadelta, optim.RMSprop, optim.Rprop, optim.ASGD),
)


class LocalStep:
    """Exchanges what one optimizer holds, before and after each of its steps."""

    def __init__(self, optimizer: optim.Optimizer) -> None:
        self._parts: dict[int, nn.Parameter] = {}
        self._wrapped: dict[tuple[int, str], DTensor] = {}
        self._inside: list[list[nn.Parameter]] | None = None
        self.possible = any(_steps_as(optimizer, kind) for kind in _ELEMENTWISE)
        if self.possible:
            optimizer.register_step_pre_hook(self._before)
            optimizer.register_step_post_hook(self._after)

    def _before(self, optimizer: optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._inside is not None:  # the step before has raised
            self._after(optimizer, (), {})
        if any(argument is not None and argument is not optimizer for argument in (*args, *kwargs.values())):
            return  # a closure
        self._inside = [group["params"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["params"] = [self._part(parameter) for parameter in group["params"]]
        state: defaultdict[Any, Any] = defaultdict(dict)
        for parameter, values in optimizer.state.items():
            state[self._part(parameter)] = {name: self._shard(parameter, name, value) for name, value in values.items()}
        optimizer.state = state

    def _after(self, optimizer: optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._inside is None:
            return
        whole: dict[int, nn.Parameter] = {}
        for group, parameters in zip(optimizer.param_groups, self._inside, strict=True):
            for part, parameter in zip(group["params"], parameters, strict=True):
                whole[id(part)] = parameter
                if part is not parameter:
                    part.grad = None
            group["params"] = parameters
        self._inside = None
        state: defaultdict[Any, Any] = defaultdict(dict)
        for part, values in optimizer.state.items():
            parameter = whole.get(id(part), part)
            state[parameter] = {name: self._whole(parameter, name, value) for name, value in values.items()}
        optimizer.state = state

    def _part(self, parameter: nn.Parameter) -> nn.Parameter:
        if not isinstance(parameter, DTensor):
            return parameter
        shard = local(parameter).detach()
        part = self._parts.get(id(parameter))
        if part is None or part.data_ptr() != shard.data_ptr() or part.shape != shard.shape:
            part = nn.Parameter(shard, requires_grad=parameter.requires_grad)
            self._parts[id(parameter)] = part
        part.grad = None if parameter.grad is None else local(parameter.grad)
        return part

    def _shard(self, parameter: nn.Parameter, name: str, value: Any) -> Any:
        if isinstance(value, DTensor):
            self._wrapped[id(parameter), name] = value
            return local(value)
        return value

    def _whole(self, parameter: nn.Parameter, name: str, value: Any) -> Any:
        if not (isinstance(parameter, DTensor) and isinstance(value, torch.Tensor)):
            return value
        if value.dim() == 0 or value.shape != local(parameter).shape:
            return value
        wrapped = self._wrapped.get((id(parameter), name))
        if wrapped is None or local(wrapped) is not value:
            wrapped = like(parameter, value)
            self._wrapped[id(parameter), name] = wrapped
        return wrapped


def _steps_as(optimizer: optim.Optimizer, kind: type[optim.Optimizer]) -> bool:
    """Whether it is of this kind and steps as it does. Torch wraps the method when a first one is made."""
    return isinstance(optimizer, kind) and inspect.unwrap(type(optimizer).step) is inspect.unwrap(kind.step)
