"""Buckets of gradients that are averaged over the replicas together, one collective or few for each.

Invariant: every rank makes the same buckets of the same parameters in the same order. A bucket's gradients lie in one
flat buffer, as the reduce-scatter leaves them, and are then averaged where they lie; otherwise they are copied into one
and back.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn

from trainshed_runtime.engine.fsdp2 import local, zeros_like

_SMALL = 1 << 18  # elements below which a bucket is joined to its neighbour


class Bucket:
    """Trainable parameters whose gradients are averaged together over `group`; at most `limit` elements at a time."""

    def __init__(self, parameters: Sequence[nn.Parameter], group: dist.ProcessGroup, limit: int) -> None:
        self.parameters = list(parameters)
        self._group = group
        self._limit = limit
        self._pending: list[tuple[dist.Work, torch.Tensor]] = []
        self._copied: torch.Tensor | None = None

    @property
    def elements(self) -> int:
        """Of this rank's shards."""
        return sum(local(parameter).numel() for parameter in self.parameters)

    def start(self) -> None:
        """Begin to average. Absent gradients count as zeros and are made so."""
        for parameter in self.parameters:
            if parameter.grad is None:
                parameter.grad = zeros_like(parameter)
        gradients = [local(parameter.grad) for parameter in self.parameters if parameter.grad is not None]
        flat = one_buffer(gradients)
        if flat is None:
            flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
            self._copied = flat
        for piece in flat.split(self._limit):
            work = dist.all_reduce(piece, op=dist.ReduceOp.AVG, group=self._group, async_op=True)
            self._pending.append((work, piece))

    def finish(self) -> None:
        """Wait (on CUDA: make the current stream wait) until the gradients are averaged."""
        for work, _ in self._pending:
            work.wait()
        self._pending.clear()
        if self._copied is None:
            return
        gradients = [local(parameter.grad) for parameter in self.parameters if parameter.grad is not None]
        parts = self._copied.split([gradient.numel() for gradient in gradients])
        with torch.no_grad():
            torch._foreach_copy_(gradients, [part.view_as(to) for part, to in zip(parts, gradients, strict=True)])
        self._copied = None


def one_buffer(tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """The stretch of memory that the tensors fill, one after the other and without a gap; None where they do not.

    Gaps (padding of uneven shards) are refused, since the length must not depend on how a rank came by its gradients.
    """
    filled = [tensor for tensor in tensors if tensor.numel()]
    if not filled:
        return None
    first = filled[0]
    begin = end = first.storage_offset()
    for tensor in filled:
        same = tensor.untyped_storage().data_ptr() == first.untyped_storage().data_ptr() and tensor.dtype == first.dtype
        if not same or not tensor.is_contiguous() or tensor.storage_offset() != end:
            return None
        end += tensor.numel()
    return first.as_strided((end - begin,), (1,), begin)


def join_small(sizes: Sequence[int]) -> list[list[int]]:
    """Indices of neighbours that share a bucket, so that no bucket but the last is very small."""
    found: list[list[int]] = []
    held = _SMALL
    for index, size in enumerate(sizes):
        if held < _SMALL and size < _SMALL:
            found[-1].append(index)
            held += size
        else:
            found.append([index])
            held = size
    return found
