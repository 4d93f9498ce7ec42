"""The collectives as FSDP2 takes them: `set_custom_all_gather` and `set_custom_reduce_scatter` of each FSDP module.

    communicator = Communicator.of_group(mesh.get_group("shard"))
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_custom_all_gather(CustomAllGather(communicator))
            module.set_custom_reduce_scatter(CustomReduceScatter(other))

Invariants: the all-gather may be asynchronous; FSDP2 drops the handle of a reduce-scatter, so on a CPU that is done
when the call returns. A gather that was prefetched must not make a reduce-scatter wait: give each a communicator of
its own.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed import ProcessGroup, Work
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter

from trainshed_runtime.collectives.communicator import Communicator


class CustomAllGather(AllGather):
    """An all-gather for FSDP2 over a communicator of the group that FSDP2 shards over."""

    def __init__(self, communicator: Communicator) -> None:
        self.communicator = communicator

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """The buffer of the whole."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: ProcessGroup, async_op: bool = False
    ) -> Work | None:
        """See torch's AllGather."""
        _check(self.communicator, group)
        if async_op:
            return self.communicator.all_gather_async(output_tensor, input_tensor)
        self.communicator.all_gather(output_tensor, input_tensor)
        return None


class CustomReduceScatter(ReduceScatter):
    """A reduce-scatter for FSDP2 over a communicator of the group that FSDP2 shards over."""

    def __init__(self, communicator: Communicator) -> None:
        self.communicator = communicator

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """The buffer of the whole, and that of the result."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> Work | None:
        """See torch's ReduceScatter; done when it returns, unless `async_op`."""
        _check(self.communicator, group)
        if async_op:
            return self.communicator.reduce_scatter_async(output_tensor, input_tensor, op)
        self.communicator.reduce_scatter(output_tensor, input_tensor, op)
        return None


def _check(communicator: Communicator, group: ProcessGroup) -> None:
    if group.size() != communicator.links.size or group.rank() != communicator.links.rank:
        raise ValueError(
            f"the communicator is of ranks {list(communicator.links.ranks)}, but FSDP2 shards over a group of "
            f"{group.size()} in which this is rank {group.rank()}"
        )
