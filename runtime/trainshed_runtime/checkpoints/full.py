"""The whole model, rebuilt one parameter at a time: never is more than one of them whole on a rank besides rank 0.

Invariant: rank 0 holds each tensor once, in host memory; the ranks of its partition group one tensor for a moment; the
other copies of the model do nothing. Names that share a tensor share it in the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from trainshed_runtime.checkpoints.flat import fill, place_of, reader, shard_axis
from trainshed_runtime.checkpoints.names import aliases_of, buffers_of, parameters_of


def shapes_of(module: nn.Module) -> dict[str, tuple[torch.Size, torch.dtype]]:
    """Of every tensor that `stream` gives, in its order."""
    return {name: (tensor.shape, tensor.dtype) for name, tensor in _tensors(module).items()}


def stream(module: nn.Module) -> Iterator[tuple[str, torch.Tensor | None]]:
    """Each parameter and buffer once: whole in host memory on rank 0, None elsewhere. Collective: go to the end."""
    takes_part = place_of(module).first
    keeps = not dist.is_initialized() or dist.get_rank() == 0
    for name, tensor in _tensors(module).items():
        whole: torch.Tensor | None = None
        if isinstance(tensor, DTensor) and shard_axis(tensor) is not None:
            if takes_part:
                whole = tensor.detach().full_tensor()
        elif keeps:
            whole = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        yield name, whole.detach().cpu() if keeps and whole is not None else None


def full_state_dict(module: nn.Module) -> dict[str, torch.Tensor]:
    """The whole state_dict on rank 0, with every name of tied weights; empty on the others. A collective call."""
    found = {name: tensor for name, tensor in stream(module) if tensor is not None}
    if found:
        found.update({alias: found[name] for alias, name in aliases_of(module).items() if name in found})
    return found


def load_full(module: nn.Module, state: Mapping[str, Any], strict: bool = True) -> tuple[list[str], list[str]]:
    """Fill the module from whole tensors, each rank its own rows; (missing, unexpected) names.

    ValueError where a shape differs, or where names do and `strict`. Nothing is communicated: every rank gets `state`,
    best mapped from a file (`torch.load(…, mmap=True)`), so that it reads only its part.
    """
    aliases = aliases_of(module)
    tensors = _tensors(module)
    missing = []
    for name, target in tensors.items():
        found = next((each for each in (name, *_others(aliases, name)) if each in state), None)
        if found is None:
            missing.append(name)
            continue
        value = state[found]
        if value.shape != target.shape:
            raise ValueError(f"{name} has shape {tuple(value.shape)} in the checkpoint, {tuple(target.shape)} here")
        fill(target, reader(value))
    unexpected = [
        name for name, value in state.items() if isinstance(value, torch.Tensor) and name not in {*tensors, *aliases}
    ]
    if strict and (missing or unexpected):
        raise ValueError(f"the state_dict does not fit: missing {missing[:5]}, unexpected {unexpected[:5]}")
    return missing, unexpected


def load_full_file(module: nn.Module, path: Path, strict: bool = True) -> tuple[list[str], list[str]]:
    """`load_full` from what torch.save wrote; each rank reads its own rows."""
    return load_full(module, read_full_file(path), strict)


def read_full_file(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a state_dict's file, mapped where torch can; also one that is under the key `model` there."""
    try:
        state = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except RuntimeError as error:
        if "mmap" not in str(error):
            raise
        state = torch.load(path, map_location="cpu", weights_only=True)  # a file of torch before 1.6
    inner = state.get("model")
    if isinstance(inner, Mapping):
        state = inner
    return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}


def _others(aliases: Mapping[str, str], name: str) -> list[str]:
    return [alias for alias, first in aliases.items() if first == name]


def _tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    return {**parameters_of(module), **buffers_of(module)}
