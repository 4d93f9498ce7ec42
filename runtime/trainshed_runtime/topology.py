"""Which node each rank of a world is on: the one place that knows how ranks are laid out over nodes.

Invariant: ranks are numbered node by node (node-major), and every node holds the same number of them, as torchrun,
mpirun with slots and Trainshed's launchers give them. Where nodes differ in size, nothing here guesses: `Topology` is
refused, and `from_environment` gives one node, on which every hierarchical collective becomes the flat one.
Imports no torch, since the planner, the service and the command line use it.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

OVERRIDE = "TRAINSHED_RANKS_PER_NODE"
_WORLD_SIZE = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE")
_LOCAL_SIZE = (OVERRIDE, "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")


@dataclass(frozen=True)
class Topology:
    """`world_size` ranks, `ranks_per_node` on each node; ValueError unless the second divides the first."""

    world_size: int
    ranks_per_node: int

    def __post_init__(self) -> None:
        if self.world_size < 1 or self.ranks_per_node < 1:
            raise ValueError(f"a world of {self.world_size} ranks, {self.ranks_per_node} on a node, has no rank")
        if self.world_size % self.ranks_per_node:
            raise ValueError(
                f"{self.world_size} ranks cannot be laid out {self.ranks_per_node} to a node: every node must hold "
                "the same number of ranks"
            )

    @classmethod
    def from_environment(
        cls, world_size: int | None = None, environment: Mapping[str, str] | None = None
    ) -> "Topology":
        """The topology that the launcher's variables tell; one node where they tell none that fits.

        Read in this order: TRAINSHED_RANKS_PER_NODE, LOCAL_WORLD_SIZE (torchrun), OMPI_COMM_WORLD_LOCAL_SIZE (mpirun),
        the number of hosts in SM_HOSTS. `world_size` stands in front of WORLD_SIZE; without any, the world is one rank.
        """
        variables = os.environ if environment is None else environment
        size = world_size if world_size is not None else _number(variables, _WORLD_SIZE) or 1
        local = _number(variables, _LOCAL_SIZE)
        if local is None:
            hosts = _hosts(variables)
            local = size // hosts if hosts and size % hosts == 0 else None
        if local is None or local < 1 or size % local:
            return cls(size, size)
        return cls(size, local)

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return self.world_size // self.ranks_per_node

    def node_of(self, rank: int) -> int:
        """The node that a rank of the world is on, counted from 0."""
        return self._checked(rank) // self.ranks_per_node

    def local_rank_of(self, rank: int) -> int:
        """The rank's place on its node, counted from 0."""
        return self._checked(rank) % self.ranks_per_node

    def spans_nodes(self, ranks: Sequence[int]) -> bool:
        """Whether the ranks are on more than one node."""
        return len({self.node_of(rank) for rank in ranks}) > 1

    def grid(self, ranks: Sequence[int]) -> tuple[tuple[int, ...], ...] | None:
        """The ranks of a group as rows, one per node; None where they are no grid that a hierarchy could use.

        A grid has two rows and two columns at least, and rows of the same length; read row by row it is the group's own
        order, so a rank's row and column follow from its place in the group.
        """
        rows: list[list[int]] = []
        last = -1
        for rank in ranks:
            node = self.node_of(rank)
            if node < last:
                return None
            if node != last:
                rows.append([])
                last = node
            rows[-1].append(rank)
        if len(rows) < 2 or len(rows[0]) < 2 or len({len(row) for row in rows}) != 1:
            return None
        return tuple(tuple(row) for row in rows)

    def _checked(self, rank: int) -> int:
        if not 0 <= rank < self.world_size:
            raise ValueError(f"rank {rank} is not in a world of {self.world_size} ranks")
        return rank


def _number(variables: Mapping[str, str], names: Sequence[str]) -> int | None:
    """The first of the variables that holds a whole number above 0."""
    for name in names:
        value = variables.get(name, "").strip()
        if value.isdecimal() and int(value) > 0:
            return int(value)
    return None


def _hosts(variables: Mapping[str, str]) -> int | None:
    try:
        hosts = json.loads(variables.get("SM_HOSTS", "null"))
    except ValueError:
        return None
    return len(hosts) if isinstance(hosts, list) and hosts else None
