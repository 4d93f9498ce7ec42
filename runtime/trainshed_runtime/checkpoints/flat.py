"""Flat shards: a tensor as `count` equal pieces of ceil(numel / count) elements, the last ones filled up with zeros.

That is how AWS's library lays out a sharded checkpoint; FSDP2 shards rows instead. Both agree where the rows divide;
otherwise a tensor is gathered, one at a time, and cut anew. Reading maps any layout to any other by element ranges.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, Shard

Read = Callable[[int, int], torch.Tensor]
"""`read(first, last)`: the elements [first, last) of a flat tensor."""


@dataclass(frozen=True)
class Place:
    """This rank's place among those that share one copy of the model; `first`: the copy that rank 0 is part of."""

    index: int
    count: int
    first: bool


def place_of(module: nn.Module) -> Place:
    """Where the module's sharded parameters put this rank; a module that is not sharded has one place, rank 0's."""
    for parameter in module.parameters():
        if isinstance(parameter, DTensor):
            axis = shard_axis(parameter)
            if axis is not None:
                mesh = parameter.device_mesh
                ranks = dist.get_process_group_ranks(mesh.get_group(axis))
                return Place(mesh.get_local_rank(axis), mesh.size(axis), 0 in ranks)
    return Place(0, 1, not dist.is_initialized() or dist.get_rank() == 0)


def shard_axis(tensor: DTensor) -> int | None:
    """The mesh axis over which the tensor's rows are sharded; None where they are not. ValueError for other layouts."""
    axes = [axis for axis, placement in enumerate(tensor.placements) if isinstance(placement, Shard)]
    if len(axes) > 1 or any(tensor.placements[axis] != Shard(0) for axis in axes):
        raise ValueError(f"a tensor is laid out as {tensor.placements}; only rows over one axis of the mesh are known")
    return axes[0] if axes else None


def piece_size(elements: int, count: int) -> int:
    return math.ceil(elements / count)


def flat_piece(tensor: torch.Tensor, place: Place) -> torch.Tensor:
    """This rank's flat piece, in host memory; a collective call of the partition group where rows do not divide."""
    whole = tensor
    if isinstance(tensor, DTensor):
        axis = shard_axis(tensor)
        if axis is not None and tensor.shape[0] % place.count == 0:
            return tensor.to_local().detach().reshape(-1).cpu().clone()
        whole = tensor.full_tensor() if axis is not None else tensor.to_local()
    flat = whole.detach().reshape(-1)
    size = piece_size(flat.numel(), place.count)
    piece = flat[place.index * size : (place.index + 1) * size].cpu()
    return torch.cat([piece, piece.new_zeros(size - piece.numel())]) if piece.numel() < size else piece.clone()


def fill(target: torch.Tensor, read: Read) -> None:
    """Fill what this rank holds of `target` (its rows of a DTensor, else all) from a flat tensor."""
    own, first = target, 0
    if isinstance(target, DTensor):
        own = target.to_local()
        axis = shard_axis(target)
        if axis is not None:
            rows = target.shape[0]
            each = math.ceil(rows / target.device_mesh.size(axis))
            first = min(rows, target.device_mesh.get_local_rank(axis) * each) * (target.numel() // max(rows, 1))
    if own.numel():
        with torch.no_grad():
            own.copy_(read(first, first + own.numel()).view(own.shape))


def reader(whole: torch.Tensor) -> Read:
    """Reads from a tensor that is there whole (mapped from a file, if need be)."""
    flat = whole.reshape(-1)
    return lambda first, last: flat[first:last]
