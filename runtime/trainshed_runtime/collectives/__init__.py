"""Collectives over torch.distributed that know which ranks share a node.

`Communicator.of_group(group)` makes connections for a group; its methods are all_gather, reduce_scatter, all_reduce and
broadcast. `CustomAllGather` and `CustomReduceScatter` give them to FSDP2, the backend `smddp` to everything else.
"""

from trainshed_runtime.collectives.communicator import Communicator
from trainshed_runtime.collectives.fsdp import CustomAllGather, CustomReduceScatter
from trainshed_runtime.collectives.links import Grid, Links, Lost, grid_of
from trainshed_runtime.collectives.reduction import Reduction

__all__ = ["Communicator", "CustomAllGather", "CustomReduceScatter", "Grid", "Links", "Lost", "Reduction", "grid_of"]
