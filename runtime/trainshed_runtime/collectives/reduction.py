"""Adding up what several ranks contributed, in the order of ranks, so that a rerun gives the same bits.

Invariant: half-precision contributions are added in float32 and rounded once for each call, whatever their number.
"""

from collections.abc import Sequence
from enum import Enum

import torch
from torch.distributed import ReduceOp

_HALVES = (torch.float16, torch.bfloat16)
_FLOATS = (torch.float32, torch.float64, *_HALVES)
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


class Reduction(Enum):
    """The reductions that are ours; any other is left to the backend underneath."""

    SUM = "sum"
    AVG = "avg"
    MAX = "max"
    MIN = "min"
    PRODUCT = "product"


_OF_TORCH = {
    ReduceOp.RedOpType.SUM: Reduction.SUM,
    ReduceOp.RedOpType.AVG: Reduction.AVG,
    ReduceOp.RedOpType.MAX: Reduction.MAX,
    ReduceOp.RedOpType.MIN: Reduction.MIN,
    ReduceOp.RedOpType.PRODUCT: Reduction.PRODUCT,
}


def reduction_for(op: object, dtype: torch.dtype) -> Reduction | None:
    """Ours for a torch ReduceOp and a type of element; None where the backend underneath has to do it, or to refuse."""
    found = _OF_TORCH.get(getattr(op, "op", op) if isinstance(op, ReduceOp) else op)  # type: ignore[call-overload]
    if found is None:
        found = next((ours for theirs, ours in _OF_TORCH.items() if op == theirs), None)
    if dtype in _FLOATS:
        return found
    return found if dtype in _INTEGERS and found is not Reduction.AVG else None


def reduce_into(output: torch.Tensor, parts: Sequence[torch.Tensor], reduction: Reduction, divisor: int = 1) -> None:
    """output = parts[0] ∘ parts[1] ∘ …, divided by `divisor`. `output` may be one of the parts."""
    if len(parts) == 1:
        if output.data_ptr() != parts[0].data_ptr():
            output.copy_(parts[0])
        if divisor != 1:
            output.div_(divisor)
        return
    if output.dtype in _HALVES and (len(parts) > 2 or divisor != 1):
        total = parts[0].float()
        for part in parts[1:]:
            _combine(total, part, reduction, total)
        output.copy_(total.div_(divisor) if divisor != 1 else total)
        return
    # Written at once where no later part is overwritten by it; else beside and copied.
    beside = any(output.data_ptr() == part.data_ptr() for part in parts[2:])
    total = torch.empty_like(output) if beside else output
    _combine(parts[0], parts[1], reduction, total)
    for part in parts[2:]:
        _combine(total, part, reduction, total)
    if divisor != 1:
        total.div_(divisor)
    if beside:
        output.copy_(total)


def _combine(left: torch.Tensor, right: torch.Tensor, reduction: Reduction, output: torch.Tensor) -> None:
    if reduction in (Reduction.SUM, Reduction.AVG):
        torch.add(left, right, out=output)
    elif reduction is Reduction.MAX:
        torch.maximum(left, right, out=output)
    elif reduction is Reduction.MIN:
        torch.minimum(left, right, out=output)
    else:
        torch.mul(left, right, out=output)
