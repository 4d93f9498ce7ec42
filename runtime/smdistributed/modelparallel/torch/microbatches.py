"""`smp.step`: a function that runs once per microbatch, and what it returned for all of them.

Invariant: microbatches are equal parts of the batch, in order; an output belongs to one microbatch, and the reductions
give fresh tensors, which a script may change in place.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from smdistributed.modelparallel.torch.comm import to_device
from smdistributed.modelparallel.torch.state import current


class StepOutput:
    """One output of the function for every microbatch; `outputs` in order."""

    def __init__(self, outputs: Sequence[Any]) -> None:
        self.outputs = list(outputs)

    def __repr__(self) -> str:
        return f"StepOutput({self.outputs!r})"

    def stack(self) -> torch.Tensor:
        """The outputs along a new first dimension."""
        return torch.stack(self._tensors("stack"))

    def concat(self) -> torch.Tensor:
        """The outputs one after the other along the first dimension (numbers: as a vector)."""
        tensors = self._tensors("concat")
        return torch.cat([tensor.reshape(1) if tensor.dim() == 0 else tensor for tensor in tensors])

    def reduce_mean(self) -> torch.Tensor:
        """Their mean."""
        return self.stack().mean(0)

    def reduce_sum(self) -> torch.Tensor:
        """Their sum."""
        return self.stack().sum(0)

    def _tensors(self, what: str) -> list[torch.Tensor]:
        for output in self.outputs:
            if not isinstance(output, torch.Tensor):
                raise TypeError(f"StepOutput.{what}() needs tensors, but the step returned a {type(output).__name__}")
        return self.outputs


def step(
    function: Callable[..., Any] | None = None,
    *,
    non_split_inputs: Sequence[str] | None = None,
    input_split_axes: Mapping[str, int] | None = None,
    detach_outputs: bool = True,
) -> Callable[..., Any]:
    """Decorate a function of a model and a batch. `@smp.step` or `@smp.step(non_split_inputs=[...], ...)`.

    `non_split_inputs`: names of arguments that every microbatch gets whole. `input_split_axes`: the dimension to split
    an argument along, 0 by default. An object with `smp_slice(num_mb, mb, axis)` splits itself.
    """
    if function is None:
        return functools.partial(
            step,
            non_split_inputs=non_split_inputs,
            input_split_axes=input_split_axes,
            detach_outputs=detach_outputs,
        )
    whole = set(non_split_inputs or ())
    axes = dict(input_split_axes or {})
    signature = inspect.signature(function)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        state = current()
        count = int(state.settings["microbatches"])
        bound = signature.bind(*args, **kwargs)
        names = dict(_named(bound, signature))
        for name in [*whole, *axes]:
            if name not in signature.parameters and name not in names:
                raise ValueError(f"smp.step names the input {name!r}, which {function.__name__} does not have")
        batch = {name: _prepared(value, state.device) for name, value in names.items()}
        outputs = []
        for number in range(count):
            part = {
                name: value if name in whole else _slice(value, count, number, axes.get(name, 0), name)
                for name, value in batch.items()
            }
            outputs.append(_call(function, signature, bound, part))
        return _collect([_detached(output) if detach_outputs else output for output in outputs])

    return run


def _named(bound: inspect.BoundArguments, signature: inspect.Signature) -> list[tuple[str, Any]]:
    """All arguments under a name; those of *args under `name.position`, those of **kwargs under their own."""
    found: list[tuple[str, Any]] = []
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            found.extend((f"{name}.{place}", item) for place, item in enumerate(value))
        elif kind is inspect.Parameter.VAR_KEYWORD:
            found.extend(value.items())
        else:
            found.append((name, value))
    return found


def _call(
    function: Callable[..., Any], signature: inspect.Signature, bound: inspect.BoundArguments, part: Mapping[str, Any]
) -> Any:
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            args.extend(part[f"{name}.{place}"] for place in range(len(value)))
        elif kind is inspect.Parameter.VAR_KEYWORD:
            kwargs.update({key: part[key] for key in value})
        elif kind is inspect.Parameter.KEYWORD_ONLY:
            kwargs[name] = part[name]
        else:
            args.append(part[name])
    return function(*args, **kwargs)


def _prepared(value: Any, device: torch.device) -> Any:
    return value if isinstance(value, (nn.Module, torch.optim.Optimizer)) else to_device(value, device)


def _slice(value: Any, count: int, number: int, axis: int, name: str) -> Any:
    if hasattr(value, "smp_slice"):
        return value.smp_slice(count, number, axis)
    if isinstance(value, nn.Module):
        return value
    if isinstance(value, torch.Tensor):
        if count == 1:
            return value
        if value.dim() <= axis or value.size(axis) % count:
            raise ValueError(
                f"the input {name!r} has shape {tuple(value.shape)}; its dimension {axis} cannot be split into {count} "
                "equal microbatches. Change the batch size or microbatches, or list it in non_split_inputs."
            )
        return value.chunk(count, axis)[number]
    if isinstance(value, dict):
        return {key: _slice(item, count, number, axis, name) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_slice(item, count, number, axis, name) for item in value))
    if type(value) in (list, tuple):
        return type(value)(_slice(item, count, number, axis, name) for item in value)
    return value


def _detached(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, Mapping):
        return {key: _detached(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_detached(item) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_detached(item) for item in value)
    return value


def _collect(outputs: list[Any]) -> Any:
    """A StepOutput; where the function returned a list, a tuple or a mapping: one for each of its values."""
    first = outputs[0]
    if isinstance(first, Mapping):
        return {key: _collect([output[key] for output in outputs]) for key in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(_collect([output[place] for output in outputs]) for place in range(len(first))))
    if isinstance(first, (list, tuple)):
        return type(first)(_collect([output[place] for output in outputs]) for place in range(len(first)))
    return StepOutput(outputs)
