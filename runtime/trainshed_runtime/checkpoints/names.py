"""Names of what a checkpoint holds, the same under every wrapping and every degree.

Invariant: a name is the one that the user's own module gives; what wrappers put in (activation checkpointing,
offloading, compilation) is taken out. A parameter that has several names goes under the first.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

_WRAPPERS = ("_checkpoint_wrapped_module.", "_orig_mod.", "_fsdp_wrapped_module.")


def plain_name(name: str) -> str:
    """`blocks.0._checkpoint_wrapped_module.weight` → `blocks.0.weight`."""
    for part in _WRAPPERS:
        name = name.replace(part, "")
    return name


def parameters_of(module: nn.Module) -> dict[str, nn.Parameter]:
    """Each parameter once."""
    return {plain_name(name): parameter for name, parameter in module.named_parameters()}


def aliases_of(module: nn.Module) -> dict[str, str]:
    """Further names of parameters and buffers that have several → the first name, as tied weights have."""
    first: dict[int, str] = {}
    found = {}
    for pairs in (module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False)):
        for raw, tensor in pairs:
            name = plain_name(raw)
            if id(tensor) in first:
                found[name] = first[id(tensor)]
            else:
                first[id(tensor)] = name
    return found


def buffers_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """The buffers that belong in a state_dict, each once."""
    skipped = {
        f"{prefix}.{name}" if prefix else name
        for prefix, part in module.named_modules()
        for name in part._non_persistent_buffers_set
    }
    return {plain_name(name): buffer for name, buffer in module.named_buffers() if name not in skipped}


def named_groups(
    module: nn.Module, optimizer: torch.optim.Optimizer
) -> Iterator[tuple[dict[str, object], list[tuple[str, nn.Parameter]]]]:
    """Each group of the optimizer: its options, and its parameters with their names. ValueError for a stranger."""
    names = {id(parameter): name for name, parameter in parameters_of(module).items()}
    for group in optimizer.param_groups:
        options = {key: value for key, value in group.items() if key not in ("params", "param_names")}
        named = []
        for parameter in group["params"]:
            if id(parameter) not in names:
                raise ValueError(
                    f"the optimizer holds a parameter of shape {tuple(parameter.shape)} that is not the module's; make "
                    "the optimizer of module.parameters() after the module was sharded"
                )
            named.append((names[id(parameter)], parameter))
        yield options, named
