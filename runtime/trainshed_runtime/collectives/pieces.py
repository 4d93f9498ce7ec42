"""Cutting tensors into pieces, so that one piece crosses a link while another is added up or copied.

Invariant: every rank cuts the same tensor in the same way, from its size alone; the pieces together are the tensor.
"""

from itertools import pairwise

import torch

PIECE_BYTES = 1 << 20
_FEWEST_BYTES = 64 << 10
_SHARES = 8


def cut(tensor: torch.Tensor, factor: int = 1) -> list[torch.Tensor]:
    """A flat tensor's pieces; `factor` as many bytes as usual where each piece is shared out further."""
    size = tensor.numel() * tensor.element_size()
    piece = min(PIECE_BYTES * factor, max(_FEWEST_BYTES * factor, -(-size // _SHARES)))
    count = max(1, -(-size // piece))
    return share(tensor, count)


def share(tensor: torch.Tensor, count: int) -> list[torch.Tensor]:
    """A flat tensor in `count` parts whose sizes differ by one element at most; some are empty where it is short."""
    length = tensor.numel()
    edges = [length * index // count for index in range(count + 1)]
    return [tensor[begin:end] for begin, end in pairwise(edges)]
