"""Ring collectives: each rank sends to the next one only. For groups that no grid describes, and to compare with.

Invariant: a rank sends (n-1)/n of the tensor for a gather or a reduce-scatter and 2(n-1)/n for an all-reduce, which is
the least there is for ranks that all have a link of their own; node-major ranks cross each node link with as much.
A sum travels with the chunk: chunk r is added in the order r+1, r+2, …, r, rounded to the tensor's type on each hop.
All tensors are flat and contiguous. Chunks may differ in size: `inputs` and `outputs` have one for each rank.
"""

from collections import deque
from collections.abc import Sequence

import torch

from trainshed_runtime.collectives.links import Links, Transfer
from trainshed_runtime.collectives.pieces import cut, share
from trainshed_runtime.collectives.reduction import Reduction, reduce_into

_LANE = 0
_WINDOW = 8  # pieces that are expected at a time


def reduce_scatter(
    links: Links, output: torch.Tensor, inputs: Sequence[torch.Tensor], reduction: Reduction, divisor: int
) -> None:
    """output = the reduction of all ranks' inputs[rank], divided by `divisor`."""
    size, rank = links.size, links.rank
    if size == 1:
        reduce_into(output, [inputs[0]], reduction, divisor)
        return
    after, before = (rank + 1) % size, (rank - 1) % size
    outputs = cut(output)
    expected = [
        (step, index, own)
        for step in range(size - 1)
        for index, own in enumerate(cut(inputs[(rank - 2 - step) % size]))
        if own.numel()
    ]
    sent: deque[tuple[Transfer, torch.Tensor | None]] = deque()
    for piece in cut(inputs[(rank - 1) % size]):
        if piece.numel():
            sent.append((links.send(piece, after, _LANE), None))
    arriving: deque[Transfer] = deque()
    for position in range(len(expected) + _WINDOW):
        if position < len(expected):
            arriving.append(links.receive(links.take(expected[position][2]), before, _LANE))
        if position < _WINDOW:
            continue
        step, index, own = expected[position - _WINDOW]
        partial = arriving.popleft().wait()
        if step == size - 2:
            reduce_into(outputs[index], [partial, own], reduction, divisor)
            links.give(partial)
        else:
            reduce_into(partial, [partial, own], reduction)
            sent.append((links.send(partial, after, _LANE), partial))
        while len(sent) > size * _WINDOW:
            _finish(links, sent)
    while sent:
        _finish(links, sent)


def all_gather(links: Links, outputs: Sequence[torch.Tensor]) -> None:
    """outputs[r] = rank r's; this rank's own is there already."""
    size, rank = links.size, links.rank
    if size == 1:
        return
    after, before = (rank + 1) % size, (rank - 1) % size
    arriving = [
        (step, links.receive(piece, before, _LANE))
        for step in range(size - 1)
        for piece in cut(outputs[(rank - 1 - step) % size])
        if piece.numel()
    ]
    sent = [links.send(piece, after, _LANE) for piece in cut(outputs[rank]) if piece.numel()]
    for step, transfer in arriving:
        piece = transfer.wait()
        if step < size - 2:
            sent.append(links.send(piece, after, _LANE))
    for transfer in sent:
        transfer.wait()


def all_reduce(links: Links, tensor: torch.Tensor, reduction: Reduction, divisor: int) -> None:
    """tensor = the reduction of all ranks' tensors, the same bits everywhere."""
    chunks = share(tensor, links.size)
    reduce_scatter(links, chunks[links.rank], chunks, reduction, divisor)
    all_gather(links, chunks)


def broadcast(links: Links, tensor: torch.Tensor, root: int) -> None:
    """tensor = root's, passed on from rank to rank."""
    size = links.size
    place = (links.rank - root) % size
    pieces = [piece for piece in cut(tensor) if piece.numel()]
    after, before = (links.rank + 1) % size, (links.rank - 1) % size
    arriving = [links.receive(piece, before, _LANE) for piece in pieces] if place else []
    sent = []
    for index, piece in enumerate(pieces):
        if arriving:
            arriving[index].wait()
        if place < size - 1:
            sent.append(links.send(piece, after, _LANE))
    for transfer in sent:
        transfer.wait()


def _finish(links: Links, sent: deque[tuple[Transfer, torch.Tensor | None]]) -> None:
    transfer, scratch = sent.popleft()
    transfer.wait()
    if scratch is not None:
        links.give(scratch)
