"""Collectives over a grid of nodes: what crosses a node link crosses it once, and the nodes' ranks share the work.

    gather          across nodes among the ranks of the same place, then inside the node
    reduce-scatter  inside the node, then across nodes
    all-reduce      scatter inside, all-reduce across, gather inside
    broadcast       from node to node among the ranks of root's place, then inside the node

Invariants: a node sends (N-1)/N of the tensor for a gather or a reduce-scatter, 2(N-1)/N for an all-reduce, and at most
all of it once for a broadcast, whatever the number of its ranks. Messages are received where they belong, so a gather
needs no copy to reorder. Sums are made in the order of places, then of nodes: a rerun gives the same bits, and all
ranks get the same. Pieces of a tensor follow each other, so the hop inside costs no time while a link is the
bottleneck.
All tensors are flat and contiguous. Chunks may differ in size: `inputs` and `outputs` have one for each rank.
"""

from collections import deque
from collections.abc import Sequence

import torch

from trainshed_runtime.collectives.links import Grid, Links, Transfer
from trainshed_runtime.collectives.pieces import cut, share
from trainshed_runtime.collectives.reduction import Reduction, reduce_into

_INSIDE, _ACROSS, _ACROSS_BACK, _INSIDE_BACK = range(4)
_WINDOW = 4  # pieces that are expected inside the node at a time
_LAG = 3  # pieces that are under way between nodes while the next one is made


def all_gather(links: Links, grid: Grid, outputs: Sequence[torch.Tensor]) -> None:
    """outputs[r] = rank r's; this rank's own is there already."""
    own = outputs[grid.me]
    arriving = [
        links.receive(piece, grid.at(node, grid.place), _ACROSS)
        for node, piece in _lane(grid, outputs, grid.place, grid.other_nodes())
    ]
    inside = []
    for place in grid.other_places():
        peer = grid.at(grid.node, place)
        pieces = [*_pieces(outputs[peer]), *(piece for _, piece in _lane(grid, outputs, place, grid.other_nodes()))]
        inside.extend(links.receive_inside(piece, place, _INSIDE) for piece in pieces)
    sent = [
        links.send(piece, grid.at(node, grid.place), _ACROSS) for piece in _pieces(own) for node in grid.other_nodes()
    ]

    def pass_on(piece: torch.Tensor) -> None:
        sent.extend(links.send_inside(piece, place, _INSIDE) for place in grid.other_places())

    for piece in _pieces(own):
        pass_on(piece)
    for transfer in arriving:
        pass_on(transfer.wait())
    _wait(inside)
    _wait(sent)


def reduce_scatter(
    links: Links, grid: Grid, output: torch.Tensor, inputs: Sequence[torch.Tensor], reduction: Reduction, divisor: int
) -> None:
    """output = the reduction of all ranks' inputs[rank], divided by `divisor`. `output` may be inputs[rank]."""
    order = [*grid.other_nodes(), grid.node]
    mine = _lane(grid, inputs, grid.place, order)
    given = [
        links.send_inside(piece, place, _INSIDE)
        for place in grid.other_places()
        for _, piece in _lane(grid, inputs, place, order)
    ]
    partials: deque[tuple[Transfer, torch.Tensor | None]] = deque()
    inside: deque[dict[int, Transfer]] = deque()
    across: deque[dict[int, Transfer]] = deque()
    outputs = _pieces(output)
    made: deque[torch.Tensor] = deque()
    done = 0

    def finish() -> None:
        nonlocal done
        parts = {node: transfer.wait() for node, transfer in across.popleft().items()}
        partial = made.popleft()
        ordered = [partial if node == grid.node else parts[node] for node in range(grid.nodes)]
        reduce_into(outputs[done], ordered, reduction, divisor)
        _give(links, [*parts.values(), *([partial] if grid.local > 1 else [])])
        done += 1

    for position in range(len(mine) + _WINDOW):
        if position < len(mine):
            node, piece = mine[position]
            inside.append(_expect(links, grid, piece, inside_node=True))
            if node == grid.node and grid.nodes > 1:
                across.append(_expect(links, grid, piece, inside_node=False))
        if position < _WINDOW:
            continue
        node, piece = mine[position - _WINDOW]
        parts = {place: transfer.wait() for place, transfer in inside.popleft().items()}
        ordered = [piece if place == grid.place else parts[place] for place in range(grid.local)]
        if grid.nodes == 1:
            reduce_into(outputs[done], ordered, reduction, divisor)
            done += 1
        else:
            partial = links.take(piece) if grid.local > 1 else piece
            reduce_into(partial, ordered, reduction)
            if node == grid.node:
                made.append(partial)
            else:
                transfer = links.send(partial, grid.at(node, grid.place), _ACROSS)
                partials.append((transfer, partial if grid.local > 1 else None))
        _give(links, parts.values())
        while len(made) > _LAG:
            finish()
        while len(partials) > 2 * _LAG * grid.nodes:
            _finish(links, partials)
    while made:
        finish()
    while partials:
        _finish(links, partials)
    _wait(given)


def all_reduce(links: Links, grid: Grid, tensor: torch.Tensor, reduction: Reduction, divisor: int) -> None:
    """tensor = the reduction of all ranks' tensors, divided by `divisor`; the same bits everywhere."""
    slices = [share(piece, grid.local) for piece in cut(tensor, grid.local)]
    mine = [parts[grid.place] for parts in slices]
    shares = [share(own, grid.nodes) for own in mine]
    sent: list[Transfer] = []
    inside: deque[dict[int, Transfer]] = deque()
    across: deque[dict[int, Transfer]] = deque()
    back_inside = []
    for place in grid.other_places():
        sent.extend(links.send_inside(parts[place], place, _INSIDE) for parts in slices if parts[place].numel())
        back_inside.extend(
            links.receive_inside(parts[place], place, _INSIDE_BACK) for parts in slices if parts[place].numel()
        )
    back_across = [
        [
            links.receive(parts[node], grid.at(node, grid.place), _ACROSS_BACK)
            for node in grid.other_nodes()
            if parts[node].numel()
        ]
        for parts in shares
    ]

    def expect(index: int) -> None:
        inside.append(_expect(links, grid, mine[index], inside_node=True))
        across.append(_expect(links, grid, shares[index][grid.node], inside_node=False))

    def reduce_inside(index: int) -> None:
        own = mine[index]
        parts = {place: transfer.wait() for place, transfer in inside.popleft().items()}
        if own.numel():
            ordered = [own if place == grid.place else parts[place] for place in range(grid.local)]
            reduce_into(own, ordered, reduction, divisor if grid.nodes == 1 else 1)
        _give(links, parts.values())
        for node in grid.other_nodes():
            if shares[index][node].numel():
                sent.append(links.send(shares[index][node], grid.at(node, grid.place), _ACROSS))

    def reduce_across(index: int) -> None:
        own = shares[index][grid.node]
        parts = {node: transfer.wait() for node, transfer in across.popleft().items()}
        if own.numel() and grid.nodes > 1:
            ordered = [own if node == grid.node else parts[node] for node in range(grid.nodes)]
            reduce_into(own, ordered, reduction, divisor)
            sent.extend(links.send(own, grid.at(node, grid.place), _ACROSS_BACK) for node in grid.other_nodes())
        _give(links, parts.values())

    def spread(index: int) -> None:
        _wait(back_across[index])
        if mine[index].numel():
            sent.extend(links.send_inside(mine[index], place, _INSIDE_BACK) for place in grid.other_places())

    count = len(slices)
    for position in range(count + _WINDOW + 2 * _LAG):
        if position < count:
            expect(position)
        for stage, behind in ((reduce_inside, _WINDOW), (reduce_across, _WINDOW + _LAG), (spread, _WINDOW + 2 * _LAG)):
            if 0 <= position - behind < count:
                stage(position - behind)
    _wait(back_inside)
    _wait(sent)


def broadcast(links: Links, grid: Grid, tensor: torch.Tensor, root: int) -> None:
    """tensor = root's."""
    root_node, root_place = divmod(root, grid.local)
    pieces = _pieces(tensor)
    if grid.place != root_place:
        _wait([links.receive_inside(piece, root_place, _INSIDE) for piece in pieces])
        return
    distance = (grid.node - root_node) % grid.nodes
    before, after = (grid.at((grid.node + step) % grid.nodes, grid.place) for step in (-1, 1))
    arriving = [links.receive(piece, before, _ACROSS) for piece in pieces] if distance else []
    sent = []
    for index, piece in enumerate(pieces):
        if arriving:
            arriving[index].wait()
        if distance < grid.nodes - 1:
            sent.append(links.send(piece, after, _ACROSS))
        sent.extend(links.send_inside(piece, place, _INSIDE) for place in grid.other_places())
    _wait(sent)


def _pieces(tensor: torch.Tensor) -> list[torch.Tensor]:
    return [piece for piece in cut(tensor) if piece.numel()]


def _lane(
    grid: Grid, chunks: Sequence[torch.Tensor], place: int, nodes: Sequence[int]
) -> list[tuple[int, torch.Tensor]]:
    """The pieces of the chunks of a place on all `nodes`, piece by piece; the same list on every rank of a node."""
    columns = {node: _pieces(chunks[grid.at(node, place)]) for node in nodes}
    deepest = max((len(pieces) for pieces in columns.values()), default=0)
    return [(node, columns[node][index]) for index in range(deepest) for node in nodes if index < len(columns[node])]


def _expect(links: Links, grid: Grid, piece: torch.Tensor, inside_node: bool) -> dict[int, Transfer]:
    """Receives every other part of a piece into scratch: by place inside the node, by node across."""
    if not piece.numel():
        return {}
    if inside_node:
        return {place: links.receive_inside(links.take(piece), place, _INSIDE) for place in grid.other_places()}
    return {node: links.receive(links.take(piece), grid.at(node, grid.place), _ACROSS) for node in grid.other_nodes()}


def _give(links: Links, tensors: object) -> None:
    for tensor in tensors:  # type: ignore[attr-defined]
        links.give(tensor)


def _wait(transfers: Sequence[Transfer]) -> None:
    for transfer in transfers:
        transfer.wait()


def _finish(links: Links, partials: deque[tuple[Transfer, torch.Tensor | None]]) -> None:
    transfer, scratch = partials.popleft()
    transfer.wait()
    if scratch is not None:
        links.give(scratch)
