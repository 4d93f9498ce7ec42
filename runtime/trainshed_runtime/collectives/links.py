"""The connections of one rank to the others of its group, for messages between two of them.

Invariants: a message goes from the sender's tensor into the receiver's without a copy of ours; messages of one lane
between two ranks arrive in the order they were sent in; after a failure every later call raises it again, since what
the others still wait for is unknown. One thread at a time uses a `Links`.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import ProcessGroupGloo
from torch.distributed import PrefixStore, Store

from trainshed_runtime.collectives.near import Near, NearFailed, NearTransfer, connect
from trainshed_runtime.topology import Topology

_MEETING = 7  # the lane of `meet`
_SPARE_BYTES = 64 << 20  # of scratch that a Links keeps for its next call


@dataclass(frozen=True)
class Grid:
    """Where a rank stands in its group: `nodes` rows of `local` ranks, read row by row; it is (`node`, `place`)."""

    nodes: int
    local: int
    node: int
    place: int

    def at(self, node: int, place: int) -> int:
        """The group's rank there."""
        return node * self.local + place

    @property
    def size(self) -> int:
        return self.nodes * self.local

    @property
    def me(self) -> int:
        return self.at(self.node, self.place)

    def other_nodes(self) -> list[int]:
        """From the next one on, round: so that no two nodes send to the same one first."""
        return [(self.node + step) % self.nodes for step in range(1, self.nodes)]

    def other_places(self) -> list[int]:
        """As `other_nodes`, inside the node."""
        return [(self.place + step) % self.local for step in range(1, self.local)]


def grid_of(topology: Topology | None, ranks: Sequence[int], rank: int) -> Grid | None:
    """The grid that the world's `ranks` form as a group, seen by the group's rank `rank`.

    A group on one node is one row, one rank a node one column. None where nodes hold different numbers of its ranks.
    """
    size = len(ranks)
    if topology is None or not topology.spans_nodes(ranks):
        return Grid(1, size, 0, rank)
    if len({topology.node_of(other) for other in ranks}) == size:
        return Grid(size, 1, rank, 0)
    rows = topology.grid(ranks)
    if rows is None:
        return None
    return Grid(len(rows), len(rows[0]), rank // len(rows[0]), rank % len(rows[0]))


class Lost(RuntimeError):
    """A rank did not take part in a collective in time, or its connection broke; the text names it."""


class Transfer:
    """A message under way; `wait` returns when its tensor may be used again (sent) or read (received)."""

    __slots__ = ("_links", "_peer", "_receives", "_work", "tensor")

    def __init__(self, links: "Links", work: object, tensor: torch.Tensor, peer: int, receives: bool) -> None:
        self._links, self._work, self.tensor, self._peer, self._receives = links, work, tensor, peer, receives

    def wait(self) -> torch.Tensor:
        """The tensor; raises Lost."""
        if self._work is not None:
            self._links.wait(self._work, self._peer, self._receives)
            self._work = None
        return self.tensor


class Links:
    """Connections of `rank` to the `size - 1` other ranks of a group."""

    def __init__(
        self,
        backend: ProcessGroupGloo | None,
        ranks: Sequence[int],
        rank: int,
        topology: Topology | None,
        timeout: timedelta,
        first_lane: int = 0,
    ) -> None:
        """`ranks` are the group's ranks in the world, in the group's order; `rank` is this one's place among them.

        `backend` is None for a group of one. Its tags from `first_lane` on must be used by nobody else.
        """
        self.ranks = tuple(ranks)
        self.size = len(self.ranks)
        self.rank = rank
        self.topology = topology
        self.grid = grid_of(topology, self.ranks, rank)
        self.timeout = timeout
        self.failure: Lost | None = None
        self.calls = 0
        self._free: dict[int, list[torch.Tensor]] = defaultdict(list)
        self._free_bytes = 0
        self.backend = backend
        self._first_lane = first_lane
        self._near: Near | None = None
        self._met = False

    @classmethod
    def connect(
        cls, store: Store, name: str, ranks: Sequence[int], rank: int, topology: Topology | None, timeout: timedelta
    ) -> "Links":
        """Links over connections of their own, under a name in the store that the group uses for nothing else."""
        backend = None
        if len(ranks) > 1:
            backend = ProcessGroupGloo(PrefixStore(name, store), rank, len(ranks), timeout)
        return cls(backend, ranks, rank, topology, timeout)

    def meet(self) -> None:
        """Lets the node's ranks read each other's memory from now on, where that is possible. A call of all of them."""
        grid = self.grid
        if self._met or grid is None or grid.local == 1:
            return
        self._met = True

        def tell(place: int, tensor: torch.Tensor) -> Transfer:
            return self.send(tensor, grid.at(grid.node, place), _MEETING)

        def hear(place: int, tensor: torch.Tensor) -> Transfer:
            return self.receive(tensor, grid.at(grid.node, place), _MEETING)

        self._near = connect(grid.place, grid.local, tell, hear, self.timeout.total_seconds())

    def send_inside(self, tensor: torch.Tensor, place: int, lane: int) -> Transfer:
        """Starts to send a contiguous tensor to a place of this rank's node."""
        assert self.grid is not None
        peer = self.grid.at(self.grid.node, place)
        if self._near is None:
            return self.send(tensor, peer, lane)
        self._ready()
        return Transfer(self, self._near.send(tensor, place, lane), tensor, peer, False)

    def receive_inside(self, tensor: torch.Tensor, place: int, lane: int) -> Transfer:
        """Starts to receive into a contiguous tensor from a place of this rank's node."""
        assert self.grid is not None
        peer = self.grid.at(self.grid.node, place)
        if self._near is None:
            return self.receive(tensor, peer, lane)
        self._ready()
        return Transfer(self, self._near.receive(tensor, place, lane), tensor, peer, True)

    def wait(self, work: Any, peer: int, receives: bool) -> None:
        """Until the work is done; raises Lost."""
        try:
            if isinstance(work, NearTransfer):
                assert self._near is not None
                self._near.wait(work)
                return
            if self._near is not None:
                self._near.flush()  # others of the node may be what this rank's peer waits for
            work.wait()
        except NearFailed as error:
            place = error.place if self.grid is None else self.grid.at(self.grid.node, error.place)
            raise self.failed(place, receives, error) from error
        except RuntimeError as error:
            raise self.failed(peer, receives, error) from error

    def send(self, tensor: torch.Tensor, peer: int, lane: int) -> Transfer:
        """Starts to send a contiguous tensor to the group's rank `peer`."""
        backend = self._ready()
        try:
            work = backend.send([tensor], peer, self._first_lane + lane)
        except RuntimeError as error:
            raise self.failed(peer, False, error) from error
        return Transfer(self, work, tensor, peer, False)

    def receive(self, tensor: torch.Tensor, peer: int, lane: int) -> Transfer:
        """Starts to receive into a contiguous tensor from the group's rank `peer`."""
        backend = self._ready()
        try:
            work = backend.recv([tensor], peer, self._first_lane + lane)
        except RuntimeError as error:
            raise self.failed(peer, True, error) from error
        return Transfer(self, work, tensor, peer, True)

    def take(self, like: torch.Tensor) -> torch.Tensor:
        """A scratch tensor of the shape and type; give it back by `give` when no transfer uses it."""
        wanted = like.numel() * like.element_size()
        if self._free[wanted]:
            self._free_bytes -= wanted
            spare = self._free[wanted].pop()
        else:
            spare = torch.empty(wanted, dtype=torch.uint8)
        return spare.view(like.dtype)

    def give(self, tensor: torch.Tensor) -> None:
        """Takes a scratch tensor back."""
        spare = tensor.view(torch.uint8)
        if self._free_bytes + spare.numel() <= _SPARE_BYTES:
            self._free_bytes += spare.numel()
            self._free[spare.numel()].append(spare)

    def failed(self, peer: int, receives: bool, error: Exception) -> Lost:
        """What to raise where a transfer failed; the links are of no use from then on."""
        if self.failure is not None:
            return self.failure  # the first one tells the cause
        what = "came from" if receives else "was taken by"
        self.failure = Lost(
            f"rank {self.ranks[self.rank]}: in collective {self.calls} of the group of ranks {list(self.ranks)} "
            f"nothing {what} rank {self.ranks[peer]} (time limit {self.timeout.total_seconds():g} s): {error}"
        )
        if self._near is not None:
            self._near.close()  # so that the node's ranks are told at once; others are when this process ends
        return self.failure

    def close(self) -> None:
        """Ends the connections; transfers that still wait fail. The others see it as the end of this rank."""
        backend, self.backend = self.backend, None
        if backend is not None:
            backend.abort()
        if self._near is not None:
            self._near.close()
        if self.failure is None:
            self.failure = Lost(f"the connections of the group of ranks {list(self.ranks)} are closed")

    def _ready(self) -> ProcessGroupGloo:
        if self.failure is not None:
            raise self.failure
        assert self.backend is not None, "a group of one rank sends nothing"
        return self.backend
