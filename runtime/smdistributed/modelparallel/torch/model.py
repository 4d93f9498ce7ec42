"""`smp.DistributedModel`: a module under the engine, with the names and methods that scripts use.

Invariant: parameters are sharded when the constructor returns, so an optimizer that is made afterwards holds shards.
Names are those of the wrapped module, without a prefix. `backward` counts as one of `microbatches x
backward_passes_per_step` passes; gradients meet across replicas in the last of them.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from smdistributed.modelparallel.torch.creation import materialized
from smdistributed.modelparallel.torch.state import current
from trainshed_runtime.engine import Engine, EngineConfig
from trainshed_runtime.engine.fsdp2 import local
from trainshed_runtime.engine.offload import ActivationOffload

logger = logging.getLogger("smdistributed.modelparallel")
_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


class DistributedModel(nn.Module):
    """Shard `module` as `smp.init` was told; a collective call. See the module's docstring.

    Options about tracing, buckets and hooks of DistributedDataParallel are taken and change nothing: nothing is traced,
    and gradients are reduced by the engine.
    """

    def __init__(
        self,
        module: nn.Module,
        trace_device: str = "gpu",
        trace_execution_times: bool = False,
        overlapping_allreduce: bool = True,
        backward_passes_per_step: int = 1,
        average_grads_across_microbatches: bool = True,
        bucket_cap_mb: int = 25,
        trace_memory_usage: bool = False,
        broadcast_buffers: bool = True,
        gradient_as_bucket_view: bool = False,
    ) -> None:
        super().__init__()
        if backward_passes_per_step < 1:
            raise ValueError(f"backward_passes_per_step is {backward_passes_per_step}; it must be at least 1")
        state = current()
        settings = state.settings
        if state.model is not None:
            logger.warning("a second DistributedModel was made; checkpoints and optimizers go with the new one")
        self._microbatches = int(settings["microbatches"])
        self._average = average_grads_across_microbatches
        self._hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
        self._called = False
        self.offload: ActivationOffload | None = None
        if settings["offload_activations"]:
            self.offload = ActivationOffload(settings["activation_loading_horizon"], state.device)
        names = OrderedDict((name, tuple(parameter.shape)) for name, parameter in module.named_parameters())
        config = EngineConfig(
            accumulation=self._microbatches * backward_passes_per_step,
            compute_dtype=_DTYPES.get(settings.half or ""),
            max_live_parameters=settings["sdp_max_live_parameters"],
            persistence_threshold=settings["sdp_param_persistence_threshold"],
            reduce_bucket_size=settings["sdp_reduce_bucket_size"],
            overlap=overlapping_allreduce,
            hierarchical=settings["sdp_hierarchical_allgather"],
        )
        with materialized(module, state.mesh) as fill:
            self.engine = Engine(module, state.mesh, config)
            fill(self.engine)
        for buffer in module.buffers():
            if buffer.device != state.device:
                buffer.data = buffer.data.to(state.device)
        if broadcast_buffers:
            _agree(module)
        self.module = module
        self.param_shapes = names
        """The whole shape of each parameter, in the module's order."""
        for name, parameter in module.named_parameters():
            parameter.ds_shape = torch.Size(names[name])  # type: ignore[attr-defined]
            parameter.ds_numel = parameter.ds_shape.numel()  # type: ignore[attr-defined]
            parameter.smp_name = name  # type: ignore[attr-defined]
        state.model = self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own; outside of `smp.step`, too."""
        if not self._called:
            self._called = True
            state = current()
            for hook in list(self._hooks.values()):
                hook(self, state.optimizer)
        return self.module(*args, **kwargs)

    def backward(self, tensors: Any, grads: Any = None) -> None:
        """The backward pass of one microbatch, of one tensor or a list; scales the loss under fp16."""
        outputs = list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]
        factor = self._loss_scale() / (self._microbatches if self._average else 1)
        if factor != 1.0:
            outputs = [
                tensor.float() * factor if tensor.dtype in _DTYPES.values() else tensor * factor for tensor in outputs
            ]
        torch.autograd.backward(outputs, list(grads) if isinstance(grads, (list, tuple)) else grads)

    def _loss_scale(self) -> float:
        optimizer = current().optimizer
        return optimizer.loss_scale if optimizer is not None and optimizer.scales else 1.0

    def get_module(self) -> nn.Module:
        """The wrapped module."""
        return self.module

    @property
    def partitioned(self) -> bool:
        """Always: sharding needs no first step."""
        return True

    def register_post_partition_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """`hook(model, optimizer)` before the first forward pass."""
        handle = RemovableHandle(self._hooks)
        self._hooks[handle.id] = hook
        return handle

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The whole model's, on every rank, in host memory; a collective call, one parameter at a time."""
        found: dict[str, Any] = OrderedDict()
        for name, value in self.module.state_dict(*args, **kwargs).items():
            if isinstance(value, torch.Tensor):
                whole = value.full_tensor() if hasattr(value, "full_tensor") else value
                found[name] = whole.detach().cpu()
            else:
                found[name] = value
        return found

    def local_state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """This rank's shards, and whole what is not sharded; says so by the key `_smp_is_partial`."""
        shards = self.module.state_dict(*args, **kwargs)
        found: dict[str, Any] = OrderedDict(
            (name, local(value).detach() if isinstance(value, torch.Tensor) else value)
            for name, value in shards.items()
        )
        found["_smp_is_partial"] = True
        return found

    def load_state_dict(  # type: ignore[override]
        self, state_dict: dict[str, Any], strict: bool = True, same_partition: bool = False
    ) -> Any:
        """Load a whole `state_dict`, or this rank's part of one from a run with the same degree."""
        given = dict(state_dict)
        partial = given.pop("_smp_is_partial", False)
        targets = self.module.state_dict()
        loaded = {}
        with torch.no_grad():
            for name, target in targets.items():
                value = given.get(name)
                if value is None or not isinstance(target, torch.Tensor):
                    continue
                loaded[name] = True
                _copy(target, value, bool(partial), name)
        missing, unexpected = [n for n in targets if n not in loaded], [n for n in given if n not in targets]
        if strict and (missing or unexpected):
            raise RuntimeError(f"state_dict does not fit: missing {missing[:5]}, unexpected {unexpected[:5]}")
        return nn.modules.module._IncompatibleKeys(missing, unexpected)

    def local_parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        return self.module.parameters(recurse)

    def local_named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, nn.Parameter]]:
        return self.module.named_parameters(prefix, recurse)

    def local_buffers(self, recurse: bool = True) -> Iterator[torch.Tensor]:
        return self.module.buffers(recurse)

    def local_named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, torch.Tensor]]:
        return self.module.named_buffers(prefix, recurse)

    def local_modules(self) -> Iterator[nn.Module]:
        return self.module.modules()

    def local_named_modules(self, memo: Any = None, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
        return self.module.named_modules(memo, prefix)

    def named_parameters(  # type: ignore[override]
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """As the wrapped module names them."""
        return self.module.named_parameters(prefix, recurse, remove_duplicate)

    def named_buffers(  # type: ignore[override]
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """As the wrapped module names them."""
        return self.module.named_buffers(prefix, recurse, remove_duplicate)

    @property
    def distributed_modules(self) -> list[nn.Module]:
        """Tensor-parallel modules: none."""
        return []

    def is_distributed_parameter(self, parameter: nn.Parameter) -> bool:
        """Whether tensor parallelism divides it: never."""
        return False

    def is_distributed_buffer(self, buffer: torch.Tensor) -> bool:
        return False

    def is_scaled_batch_parameter(self, parameter: nn.Parameter) -> bool:
        return False

    def is_scaled_batch_buffer(self, buffer: torch.Tensor) -> bool:
        return False

    def default_reducer_named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """All of them."""
        return self.module.named_parameters()

    def scaled_batch_reducer_named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        return iter(())

    def register_comm_hook(self, state: object, callable: Callable[..., Any]) -> None:
        """Refused: hooks of DistributedDataParallel see whole gradients, which sharding never has."""
        raise NotImplementedError(
            "register_comm_hook works on DistributedDataParallel's buckets; sharded data parallelism reduces shards "
            "and has none. Use bf16 to halve what is sent."
        )

    @contextmanager
    def join(self, *args: Any, **kwargs: Any) -> Iterator[None]:
        """Refused for uneven inputs: a rank that stops gathering would leave its partition group waiting."""
        raise NotImplementedError(
            "join is for ranks with different numbers of batches; under sharded data parallelism every rank takes part "
            "in every step. Give all ranks the same number of batches (drop_last=True)."
        )
        yield

    def cpu(self) -> DistributedModel:
        """Refused where the model is on a device: shards stay where they are trained; `state_dict()` is on the host."""
        if current().device.type != "cpu":
            raise NotImplementedError("shards stay on their device; state_dict() gives the whole model in host memory")
        return self


def _agree(module: nn.Module) -> None:
    """Buffers as rank 0 has them."""
    for buffer in module.buffers():
        if buffer.numel():
            torch.distributed.broadcast(buffer, 0)


def _copy(target: torch.Tensor, value: torch.Tensor, partial: bool, name: str) -> None:
    own = local(target)
    if not partial and own is not target:
        assert isinstance(target, torch.distributed.tensor.DTensor)
        if value.shape != target.shape:
            raise RuntimeError(f"{name} has shape {tuple(value.shape)}, the model's is {tuple(target.shape)}")
        mesh = target.device_mesh
        parts: Sequence[torch.Tensor] = value.chunk(mesh.size(), 0) if value.numel() else [value]
        place = mesh.get_local_rank()
        value = parts[place] if place < len(parts) else value[:0]
    if value.shape != own.shape:
        raise RuntimeError(f"{name}: this rank's part has shape {tuple(own.shape)}, the given one {tuple(value.shape)}")
    own.copy_(value)
