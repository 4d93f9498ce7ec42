"""The state of a module and its optimizer as flat names → values, without a step being taken to make it.

Invariant: what is saved is exactly what is there: an optimizer that has not stepped has no state, and has none after
loading. Values are the live tensors; `staged` copies them to the host, so that training may go on while they are
written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from trainshed_runtime.checkpoints.names import buffers_of, named_groups, parameters_of

MODEL, STATE = "model.", "optimizer.state."
GROUPS = "optimizer.param_groups"


def state_of(module: nn.Module, optimizer: torch.optim.Optimizer | None) -> dict[str, Any]:
    """Tensors as they are (DTensors among them); everything else of the optimizer under GROUPS, as plain objects."""
    found: dict[str, Any] = {MODEL + name: value.detach() for name, value in parameters_of(module).items()}
    found.update({MODEL + name: value for name, value in buffers_of(module).items()})
    if optimizer is None:
        return found
    groups = []
    for options, named in named_groups(module, optimizer):
        plain: dict[str, dict[str, Any]] = {}
        for name, parameter in named:
            for key, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, torch.Tensor):
                    found[f"{STATE}{name}.{key}"] = value.detach()
                else:
                    plain.setdefault(name, {})[key] = value
        groups.append({"options": options, "names": [name for name, _ in named], "plain": plain})
    found[GROUPS] = groups
    return found


def staged(state: Mapping[str, Any]) -> dict[str, Any]:
    """A copy on the host: pinned memory on its way from a device, and every copy has arrived when this returns."""
    copies = {name: _copied(value) for name, value in state.items()}
    if any(isinstance(value, torch.Tensor) and value.is_cuda for value in state.values()):
        torch.cuda.synchronize()
    return copies


def _copied(value: Any) -> Any:
    if isinstance(value, DTensor):
        return with_local(value, _copied(value._local_tensor))
    if not isinstance(value, torch.Tensor):
        return value
    copy = torch.empty(value.shape, dtype=value.dtype, device="cpu", pin_memory=value.is_cuda)
    return copy.copy_(value.detach(), non_blocking=value.is_cuda)


def with_local(like: DTensor, part: torch.Tensor) -> DTensor:
    """A DTensor laid out as `like` with another part, which may be on the host though the mesh is not."""
    return DTensor(part, like._spec, requires_grad=False)


def apply_optimizer(
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    tensors: Mapping[str, torch.Tensor],
    groups: list[dict[str, Any]],
) -> None:
    """Make the optimizer's state and options those that were saved. `tensors`: by name without STATE's prefix.

    ValueError where its groups are not those of the saved one.
    """
    check_groups(module, optimizer, groups)
    by_parameter: dict[str, dict[str, Any]] = defaultdict(dict)
    for name, value in tensors.items():
        parameter, _, key = name.rpartition(".")
        by_parameter[parameter][key] = value
    for saved in groups:
        for name, plain in saved["plain"].items():
            by_parameter[name].update(plain)
    state: defaultdict[Any, Any] = defaultdict(dict)
    for (_, named), group, saved in zip(
        list(named_groups(module, optimizer)), optimizer.param_groups, groups, strict=True
    ):
        group.update(saved["options"])
        for name, parameter in named:
            if name in by_parameter:
                state[parameter] = by_parameter[name]
    optimizer.state = state


def check_groups(module: nn.Module, optimizer: torch.optim.Optimizer, groups: list[dict[str, Any]]) -> None:
    """ValueError where the optimizer's groups do not hold the same parameters as the saved ones."""
    here = [[name for name, _ in named] for _, named in named_groups(module, optimizer)]
    there = [list(saved["names"]) for saved in groups]
    if here == there:
        return
    strange = sorted({name for group in there for name in group} ^ {name for group in here for name in group})
    what = f"; they differ in {', '.join(strange[:5])}" if strange else " in another order or in other groups"
    raise ValueError(
        f"the checkpoint's optimizer has {len(there)} groups of {sum(map(len, there))} parameters, this one "
        f"{len(here)} of {sum(map(len, here))}{what}"
    )
