"""How the units of a partition group gather and scatter.

On a CPU: by collectives of ours, which are at the ring's floor and go across nodes first where the group spans some;
gathers run ahead in the background. On CUDA: by NCCL, in hops where the group spans nodes. Invariant: gathers and
scatters have connections of their own, so that one that runs ahead delays nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed import ProcessGroup, Work
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter

from trainshed_runtime.collectives import Communicator, CustomAllGather, CustomReduceScatter
from trainshed_runtime.collectives.device import DeviceHops
from trainshed_runtime.collectives.links import grid_of
from trainshed_runtime.engine.config import EngineConfig
from trainshed_runtime.engine.fsdp2 import Unit
from trainshed_runtime.mesh import MicsMesh


def connect(units: Sequence[Unit], mesh: MicsMesh, config: EngineConfig) -> list[Communicator]:
    """Give the units their collectives; a collective call of the partition group. Returns what is to be closed."""
    if mesh.degree == 1 or not units:
        return []
    if mesh.device.type != "cpu":
        hops = _hops(mesh) if config.hierarchical else None
        if hops is not None:
            for unit in units:
                unit.communicate(_HopGather(hops), _HopScatter(hops))
        return []
    group, topology = mesh.partition_group, mesh.topology
    gather, scatter = (Communicator.of_group(group, topology, flat=not config.hierarchical) for _ in range(2))
    for unit in units:
        unit.communicate(CustomAllGather(gather), CustomReduceScatter(scatter))
    _prefetch(units)
    return [gather, scatter]


def _prefetch(units: Sequence[Unit]) -> None:
    """Each unit fetches the next one in the background, forward and backward, in the order of registration."""
    for unit in units:
        unit.gather_in_background()
    inner = [unit for unit in units if unit.name]  # the root's own parameters are there from the first to the last
    for one, other in itertools.pairwise(inner):
        one.module.set_modules_to_forward_prefetch([other.module])
        other.module.set_modules_to_backward_prefetch([one.module])


def _hops(mesh: MicsMesh) -> DeviceHops | None:
    ranks = mesh.partition_ranks
    grid = grid_of(mesh.topology, ranks, mesh.shard)
    if grid is None or grid.nodes < 2 or grid.local < 2:
        return None
    from trainshed_runtime.smddp.group import nccl_backend

    group = mesh.partition_group
    timeout = torch.distributed.distributed_c10d._get_default_timeout("nccl")
    name = f"{group.group_name}:hops"
    return DeviceHops.over_nccl(group.get_group_store(), ranks, grid, timeout, name, nccl_backend)


class _HopGather(AllGather):
    def __init__(self, hops: DeviceHops) -> None:
        self._hops = hops

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: ProcessGroup, async_op: bool = False
    ) -> Work | None:
        if not self._hops.takes_gather(output_tensor, input_tensor):
            work: Work | None = torch.distributed.all_gather_into_tensor(output_tensor, input_tensor, group, async_op)
            return work
        return _finished(self._hops.all_gather(output_tensor, input_tensor), async_op)


class _HopScatter(ReduceScatter):
    def __init__(self, hops: DeviceHops) -> None:
        self._hops = hops

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> Work | None:
        if not self._hops.takes(input_tensor, op):
            work: Work | None = torch.distributed.reduce_scatter_tensor(
                output_tensor, input_tensor, op, group, async_op
            )
            return work
        return _finished(self._hops.reduce_scatter(output_tensor, input_tensor, op), async_op)


def _finished(work: Work, async_op: bool) -> Work | None:
    """Without a handle, the caller's stream waits; nothing on the host does."""
    if async_op:
        return work
    work.wait()
    return None
