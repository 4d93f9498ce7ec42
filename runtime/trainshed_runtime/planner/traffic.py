"""Bytes that one optimizer step puts on each link, exactly, for every way of sharding that is measured here.

Rings send (p-1)/p of the data over each of their edges for a gather or a scatter, and twice that for an all-reduce. An
edge between ranks of two nodes uses the node's link; so the bytes are found by counting such edges (in closed form
where groups lie evenly on nodes). A hierarchical collective crosses nodes first, among ranks with the same place on
their nodes, then goes on inside. With M bytes of parameters, N nodes, n ranks and s micro-steps a node then sends
s·3(n-1)/n·M for full sharding, 2(N-1)/N·M for two-hop sharding inside nodes, 2(n-1)/n·M for flat data parallelism.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from trainshed_runtime.degrees import is_even
from trainshed_runtime.topology import Topology


@dataclass(frozen=True)
class Scheme:
    """How a mode of training communicates in one optimizer step.

    `degree`: ranks that share one copy of the model (1: all have it whole); `gathers`: of all parameters, per
    micro-step; `kept`: the share of them that is gathered once per step and stays; `scatter`: when gradients are
    reduced inside the partition group; `replica`: when they are reduced over the copies; `ring_scatter`: False where a
    reduce-scatter costs an all-reduce, as gloo's does; `hierarchical`: in the partition group where it spans nodes, and
    in the all-reduce over copies.
    """

    name: str
    degree: int
    gathers: int = 2
    scatter: Literal["every", "last"] = "every"
    replica: Literal["every", "last"] = "last"
    ring_scatter: bool = True
    hierarchical: bool = False
    kept: float = 0.0


@dataclass(frozen=True)
class Links:
    """Bytes: `node` leave the busiest node, `rank` leave the busiest rank for others of its node."""

    node: float = 0.0
    rank: float = 0.0

    def __add__(self, other: "Links") -> "Links":
        return Links(self.node + other.node, self.rank + other.rank)

    def times(self, factor: float) -> "Links":
        return Links(self.node * factor, self.rank * factor)


@dataclass(frozen=True)
class Traffic:
    """Of one optimizer step, by purpose."""

    gather: Links
    scatter: Links
    replica: Links

    @property
    def total(self) -> Links:
        return self.gather + self.scatter + self.replica


def mics(degree: int, hierarchical: bool = True) -> Scheme:
    """This runtime's own: partition groups, two-hop synchronization, ring scatter."""
    return Scheme("mics", degree, hierarchical=hierarchical)


def full_shard(world_size: int, ring_scatter: bool = True) -> Scheme:
    """FSDP's full shard and ZeRO-3: flat over the whole world."""
    return Scheme("full shard", world_size, ring_scatter=ring_scatter)


def hybrid_shard(degree: int) -> Scheme:
    """FSDP's hybrid sharding: copies are synchronized in every micro-step."""
    return replace(mics(degree, hierarchical=False), name="hybrid shard", replica="every")


def data_parallel(hierarchical: bool = False) -> Scheme:
    """Every rank has the whole model; gradients are summed once, at the accumulation boundary."""
    return Scheme("data parallel", 1, gathers=0, hierarchical=hierarchical)


def step_traffic(
    scheme: Scheme, topology: Topology, accumulation: int, gather_bytes: float, reduce_bytes: float | None = None
) -> Traffic:
    """Bytes of one optimizer step of `accumulation` micro-steps.

    `gather_bytes`: of all parameters in the type in which they are gathered; `reduce_bytes`: in the type in which
    gradients are reduced, the same where it is not given. ValueError where the degree does not divide the world.
    """
    world, degree = topology.world_size, scheme.degree
    if degree < 1 or world % degree:
        raise ValueError(f"degree {degree} does not divide {world} ranks")
    reduced = gather_bytes if reduce_bytes is None else reduce_bytes
    inside = partition_exchange(degree, topology, scheme.hierarchical)
    across = replica_exchange(degree, topology, scheme.hierarchical)
    gather = inside.times(gather_bytes)
    scatter = inside.times(reduced if scheme.ring_scatter else 2 * reduced)
    replica = across.times(2 * reduced)
    return Traffic(
        gather.times(scheme.gathers * accumulation * (1 - scheme.kept) + scheme.kept * min(scheme.gathers, 1)),
        scatter.times(accumulation if scheme.scatter == "every" else 1),
        replica.times(accumulation if scheme.replica == "every" else 1),
    )


def partition_exchange(degree: int, topology: Topology, hierarchical: bool) -> Links:
    """One gather (or ring scatter) in every partition group at once, per byte of the model."""
    width = topology.ranks_per_node
    if not is_even(degree, width):
        groups = [range(first, first + degree) for first in range(0, topology.world_size, degree)]
        return counted_exchange(groups, topology, 1.0, hierarchical)
    if degree <= width:
        return Links(0.0, (degree - 1) / degree)
    height = degree // width
    if hierarchical and width > 1:
        return Links((height - 1) / height, (width - 1) / width)
    return Links((degree - 1) / degree, (degree - 1) / degree if width > 1 else 0.0)


def replica_exchange(degree: int, topology: Topology, hierarchical: bool) -> Links:
    """One gather (or ring scatter) of shards in every replication group at once, per byte of the model."""
    world, width = topology.world_size, topology.ranks_per_node
    if not is_even(degree, width):
        groups = [range(place, world, degree) for place in range(degree)]
        return counted_exchange(groups, topology, 1.0 / degree, hierarchical)
    replicas = world // degree
    if degree >= width:
        return Links(width / degree * (replicas - 1) / replicas, 0.0)
    columns, height = width // degree, topology.nodes
    if hierarchical and height > 1:
        return Links((height - 1) / height, (columns - 1) / columns / degree)
    ring = (replicas - 1) / replicas
    return Links(ring if height > 1 else 0.0, ring / degree)


def counted_exchange(groups: Sequence[Sequence[int]], topology: Topology, size: float, hierarchical: bool) -> Links:
    """One gather (or ring scatter) of `size` bytes in each of the groups at once, by counting every ring's edges."""
    nodes: Counter[int] = Counter()
    ranks: Counter[int] = Counter()
    for group in groups:
        if len(group) < 2:
            continue
        grid = topology.grid(group) if hierarchical else None
        if grid is None:
            _ring(group, topology, (len(group) - 1) / len(group) * size, nodes, ranks)
            continue
        width, height = len(grid[0]), len(grid)
        for column in zip(*grid, strict=True):
            _ring(column, topology, (height - 1) / height * size / width, nodes, ranks)
        for row in grid:
            _ring(row, topology, (width - 1) / width * size, nodes, ranks)
    return Links(max(nodes.values(), default=0.0), max(ranks.values(), default=0.0))


def _ring(group: Iterable[int], topology: Topology, edge: float, nodes: "Counter[int]", ranks: "Counter[int]") -> None:
    """Adds what one ring in the order of `group` sends over its edges."""
    order = list(group)
    for rank, following in zip(order, [*order[1:], order[0]], strict=True):
        node = topology.node_of(rank)
        if node != topology.node_of(following):
            nodes[node] += edge  # type: ignore[assignment]
        else:
            ranks[rank] += edge  # type: ignore[assignment]
