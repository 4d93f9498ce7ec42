"""The mesh of sharded data parallelism: partition groups that hold the model once, replication groups across them.

Invariant: the world is a grid of `replicas` rows and `degree` columns in rank order, `rank = replica x degree + shard`.
A row is a *partition group*: consecutive ranks, which share one copy of the model states. A column is a *replication
group*: the ranks that hold the same shard of different copies. Since ranks are numbered node by node, a partition
group lies on as few nodes as can be. This is the one place that names the axes (`replicate`, `shard`) and makes groups.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from trainshed_runtime.degrees import check_degree
from trainshed_runtime.topology import Topology

REPLICATE = "replicate"
SHARD = "shard"


@dataclass(frozen=True)
class MicsMesh:
    """The groups of this rank. `partition_group` and `replication_group` are torch process groups."""

    device_mesh: DeviceMesh
    topology: Topology
    degree: int
    replicas: int
    rank: int

    @classmethod
    def create(
        cls, degree: int | None = None, topology: Topology | None = None, device_type: str | None = None
    ) -> MicsMesh:
        """The mesh of the default process group's world; a collective call.

        `degree`: ranks that share one copy of the model, by default all of them. InvalidDegree where it does not divide
        the world. `device_type`: `cuda` where there is a device for it, by default, else `cpu`.
        """
        if not dist.is_initialized():
            raise RuntimeError("torch.distributed is not initialized: call init_process_group before making a mesh")
        world = dist.get_world_size()
        layout = topology or Topology.from_environment(world)
        if layout.world_size != world:
            raise ValueError(f"the topology has {layout.world_size} ranks, the process group {world}")
        size = check_degree(world if degree is None else degree, world, layout.ranks_per_node)
        kind = device_type or ("cuda" if torch.cuda.is_available() else "cpu")
        mesh = init_device_mesh(kind, (world // size, size), mesh_dim_names=(REPLICATE, SHARD))
        return cls(mesh, layout, size, world // size, dist.get_rank())

    @property
    def world_size(self) -> int:
        return self.degree * self.replicas

    @property
    def shard(self) -> int:
        """This rank's place in its partition group."""
        return self.rank % self.degree

    @property
    def replica(self) -> int:
        """This rank's place in its replication group."""
        return self.rank // self.degree

    @property
    def shard_mesh(self) -> DeviceMesh:
        """The one-dimensional mesh that parameters are sharded over."""
        return self.device_mesh[SHARD]

    @property
    def partition_group(self) -> dist.ProcessGroup:
        return self.device_mesh.get_group(SHARD)

    @property
    def replication_group(self) -> dist.ProcessGroup:
        return self.device_mesh.get_group(REPLICATE)

    @property
    def partition_ranks(self) -> list[int]:
        """The ranks of this rank's partition group, ascending."""
        return list(range(self.replica * self.degree, (self.replica + 1) * self.degree))

    @property
    def replication_ranks(self) -> list[int]:
        """The ranks of this rank's replication group, ascending."""
        return list(range(self.shard, self.world_size, self.degree))

    @property
    def device(self) -> torch.device:
        if self.device_mesh.device_type == "cpu":
            return torch.device("cpu")
        return torch.device(self.device_mesh.device_type, torch.cuda.current_device())

    def __str__(self) -> str:
        return (
            f"{self.world_size} ranks as {self.replicas} replica{'s' if self.replicas != 1 else ''} of {self.degree}, "
            f"{self.topology.ranks_per_node} ranks on each of {self.topology.nodes} nodes"
        )
