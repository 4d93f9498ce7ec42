"""The norm of all gradients of the model, each counted once, and clipping by it.

Invariant: all ranks compute the same number, bit for bit: replicas hold equal gradients after the boundary, and what
the ranks of a partition group add up is added in one order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.distributed as dist

from trainshed_runtime.mesh import MicsMesh

_EPSILON = 1e-6  # torch.nn.utils.clip_grad_norm_ divides by the norm plus this


def global_norm(
    sharded: Sequence[torch.Tensor], plain: Sequence[torch.Tensor], mesh: MicsMesh, order: float = 2.0
) -> float:
    """The norm over this partition group's shards and the tensors that every rank has; not finite where one is not.

    A collective call of the partition group. `order`: 2 or infinity.
    """
    if order not in (2.0, math.inf):
        raise ValueError(f"the norm of order {order} is not known here; use 2 or infinity")
    own = _powers(sharded, order, mesh.device)
    if mesh.degree > 1:
        operation = dist.ReduceOp.SUM if order == 2.0 else dist.ReduceOp.MAX
        dist.all_reduce(own, op=operation, group=mesh.partition_group)
    shared = _powers(plain, order, mesh.device)
    if order == 2.0:
        return math.sqrt(float(own + shared))
    return float(torch.maximum(own, shared))


def scale_to(tensors: Sequence[torch.Tensor], norm: float, limit: float) -> None:
    """Scale the gradients down so that their norm is `limit`, as torch does it; where it is less, leave them."""
    factor = limit / (norm + _EPSILON)
    if factor < 1.0 or math.isnan(factor):
        multiply(tensors, factor)


def multiply(tensors: Sequence[torch.Tensor], factor: float) -> None:
    """Multiply in place."""
    with torch.no_grad():
        for some in _by_kind(tensors):
            torch._foreach_mul_(some, factor)


def _powers(tensors: Sequence[torch.Tensor], order: float, device: torch.device) -> torch.Tensor:
    """The sum of squares, or the largest absolute value, in float64 where the device has it."""
    kind = torch.float32 if device.type == "mps" else torch.float64
    total = torch.zeros((), dtype=kind, device=device)
    for some in _by_kind([tensor for tensor in tensors if tensor.numel()]):
        norms = torch.stack(torch._foreach_norm(some, order)).to(kind)
        total = total + (norms * norms).sum() if order == 2.0 else torch.maximum(total, norms.max())
    return total


def _by_kind(tensors: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    found: dict[torch.dtype, list[torch.Tensor]] = {}
    for tensor in tensors:
        found.setdefault(tensor.dtype, []).append(tensor)
    return list(found.values())
