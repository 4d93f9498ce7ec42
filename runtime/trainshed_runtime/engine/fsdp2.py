"""The only module that touches what torch keeps to itself in FSDP2 (torch 2.13.0, which the runtime pins).

Invariant: nothing is changed in torch; these are reads of what `fully_shard` made of a module, and its public switches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta


class Unit:
    """A wrapped module and its parameters as the optimizer sees them: sharded DTensors, in a fixed order."""

    def __init__(self, module: nn.Module, name: str) -> None:
        self.module: FSDPModule = module  # type: ignore[assignment]
        self.name = name
        groups = self.module._get_fsdp_state()._fsdp_param_groups
        self._params = [param for group in groups for param in group.fsdp_params]
        self.parameters: list[nn.Parameter] = [param.sharded_param for param in self._params]
        self.elements = sum(parameter.numel() for parameter in self.parameters)
        """Of the whole unit, not of this rank's shard."""
        self.largest = max((parameter.numel() for parameter in self.parameters), default=0)
        self.kept = False
        """Whether it stays gathered between its uses in one optimizer step."""
        self.calls = 0
        """Forward passes with gradients since the last backward pass ended."""

    def on_full_gradient(self, done: Callable[[int], None]) -> None:
        """`done(index of the parameter)` whenever autograd has made a gradient of the whole parameter.

        Known only after the unit's first gather; calling it again adds nothing twice.
        """
        for index, param in enumerate(self._params):
            full = getattr(param, "_unsharded_param", None)
            if full is not None and full.requires_grad and not hasattr(full, "_trainshed_seen"):
                full._trainshed_seen = full.register_post_accumulate_grad_hook(lambda _, i=index: done(i))

    def keep(self, kept: bool) -> None:
        self.kept = kept
        self.module.set_reshard_after_forward(not kept, recurse=False)

    def keep_after_backward(self, kept: bool) -> None:
        self.module.set_reshard_after_backward(not kept, recurse=False)

    def communicate(self, gather: AllGather, scatter: ReduceScatter) -> None:
        """Use these collectives from now on."""
        self.module.set_custom_all_gather(gather)
        self.module.set_custom_reduce_scatter(scatter)

    def gather_in_background(self) -> None:
        """Gathers return at once and are waited for when the parameters are used."""
        for group in self.module._get_fsdp_state()._fsdp_param_groups:
            group.unshard_async_op = True

    def show(self, whole: bool) -> None:
        """Where the unit is gathered: let its module hold the whole parameters, or the shards that users know."""
        for group in self.module._get_fsdp_state()._fsdp_param_groups:
            if group.is_unsharded:
                for param in group.fsdp_params:
                    param._setattr_on_modules(param._unsharded_param if whole else param.sharded_param)

    def give_back(self) -> None:
        """Free the gathered parameters, where they are gathered. They must not be in use."""
        self.module.reshard()


def wrap(
    module: nn.Module,
    mesh: DeviceMesh,
    policy: MixedPrecisionPolicy,
    ignored: Collection[nn.Parameter],
) -> None:
    """Shard the module's parameters that no unit below it holds over `mesh`."""
    fully_shard(module, mesh=mesh, mp_policy=policy, reshard_after_forward=True, ignored_params=set(ignored))
    module.set_reduce_scatter_unused_params(True, recurse=False)  # type: ignore[operator]


def in_backward() -> bool:
    """Whether the caller runs inside of a backward pass (where checkpointed modules run forward again)."""
    return bool(torch._C._current_graph_task_id() != -1)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a DTensor, or the tensor itself; shares memory."""
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def like(parameter: torch.Tensor, shard: torch.Tensor) -> DTensor:
    """A DTensor laid out as `parameter` whose part on this rank is `shard` itself."""
    assert isinstance(parameter, DTensor)
    meta = TensorMeta(parameter.shape, parameter.stride(), shard.dtype)
    spec = DTensorSpec(parameter.device_mesh, parameter.placements, tensor_meta=meta)
    return DTensor(shard, spec, requires_grad=False)


def zeros_like(parameter: torch.Tensor) -> torch.Tensor:
    """Zeros laid out as the parameter."""
    zeros = torch.zeros_like(local(parameter))
    return like(parameter, zeros) if isinstance(parameter, DTensor) else zeros
