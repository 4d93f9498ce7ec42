"""The engine: MiCS as a policy on top of FSDP2 for one module.

Invariants. Parameters are sharded over the partition group alone, so gathers and reduce-scatters stay inside of it. A
backward pass that is not the boundary of an accumulation communicates inside the partition group alone; the boundary's
ends with gradients that are averaged over the whole world, on every rank. Gathered parameters live at most from an
accumulation's first forward pass to its boundary, so that nothing an optimizer does can leave them stale.

Between micro-steps `parameter.grad` holds the partition group's own sum so far, as a module under DDP's `no_sync` holds
the rank's own. Setting it to None (`zero_grad`) begins anew. `optimizer.step()` in the middle is right, too, where the
optimizer was given to `attach`: the accumulation is ended first, by `synchronize()`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd import Variable
from torch.distributed.fsdp import MixedPrecisionPolicy

from trainshed_runtime.engine.comms import connect
from trainshed_runtime.engine.config import EngineConfig
from trainshed_runtime.engine.fsdp2 import Unit, in_backward, local, wrap
from trainshed_runtime.engine.live import choose_kept
from trainshed_runtime.engine.local_step import LocalStep
from trainshed_runtime.engine.norm import global_norm, multiply, scale_to
from trainshed_runtime.engine.sync import ReplicaSync
from trainshed_runtime.engine.wrap import choose_units
from trainshed_runtime.mesh import MicsMesh


class Engine:
    """Shards `module` in place over `mesh`; a collective call. Make optimizers of `module.parameters()` afterwards."""

    def __init__(
        self,
        module: nn.Module,
        mesh: MicsMesh,
        config: EngineConfig | None = None,
        blocks: Sequence[type[nn.Module]] = (),
    ) -> None:
        self.module = module
        self.mesh = mesh
        self.config = config or EngineConfig()
        self.micro_step = 0
        """Backward passes of the accumulation that has begun; 0 where none has."""
        self._held_back = 0
        self._boundary = False
        self._queued = False
        self._steps: list[LocalStep] = []
        self.units = self._wrap(blocks)
        self.sharded = [parameter for unit in self.units for parameter in unit.parameters]
        self._sync = ReplicaSync(
            self.units, self.plain, mesh, self.config.reduce_bucket_size, overlap=self.config.overlap
        )
        choose_kept(self.units, self.config)
        self._communicators = connect(self.units, mesh, self.config)
        self._attach_hooks()

    def close(self) -> None:
        """End the connections of the engine's own; the module cannot run any more. At the process's end it is done."""
        for communicator in self._communicators:
            communicator.close()

    def _wrap(self, blocks: Sequence[type[nn.Module]]) -> list[Unit]:
        config, mesh = self.config, self.mesh
        with torch.no_grad():
            if config.half:  # master weights
                for parameter in self.module.parameters():
                    if parameter.is_floating_point():
                        parameter.data = parameter.data.float()
            named = list(self.module.named_parameters())
            self.plain = [parameter for _, parameter in named if parameter.dim() == 0]
            for parameter in self.plain:
                parameter.data = parameter.data.to(mesh.device)
        kinds = {parameter.dtype for _, parameter in named if parameter.requires_grad}
        if len(kinds) > 1:
            raise ValueError(
                f"the module's trainable parameters are of several types ({', '.join(sorted(map(str, kinds)))}); "
                "convert them to one, or set a compute_dtype: master weights are then all in float32"
            )
        reduce_dtype = config.reduce_dtype or (torch.float32 if config.half else None)
        policy = MixedPrecisionPolicy(param_dtype=config.compute_dtype, reduce_dtype=reduce_dtype)
        names = {id(found): name for name, found in self.module.named_modules()}
        chosen = choose_units(self.module, config.reduce_bucket_size, blocks)
        for found in chosen:
            wrap(found, mesh.shard_mesh, policy, self.plain)
        units = [Unit(found, names[id(found)]) for found in chosen]
        order = {name: place for place, (name, _) in enumerate(self.module.named_modules())}
        return sorted((unit for unit in units if unit.parameters), key=lambda unit: order[unit.name])

    def _attach_hooks(self) -> None:
        for unit in self.units:
            unit.module.register_forward_pre_hook(lambda *_, u=unit: self._count(u))  # type: ignore[attr-defined]
        self.module.register_forward_pre_hook(self._before_forward, prepend=True)
        self.module.register_forward_hook(self._after_forward)

    def _count(self, unit: Unit) -> None:
        if torch.is_grad_enabled() and not in_backward():
            unit.calls += 1

    def _before_forward(self, module: nn.Module, args: object) -> None:
        if not in_backward():
            for unit in self.units:
                unit.show(whole=True)

    def _after_forward(self, module: nn.Module, args: object, output: object) -> None:
        if in_backward():
            return
        if not torch.is_grad_enabled():
            for unit in self.units:
                if self.micro_step == 0:
                    unit.give_back()
                else:
                    unit.show(whole=False)
            return
        self._sync.watch()
        for tensor in _tensors(output):
            if tensor.requires_grad:
                tensor.register_hook(lambda gradient: self._before_backward())

    def _before_backward(self) -> None:
        """The first gradient of a backward pass has reached the module; once per pass."""
        if self._queued:
            return
        self._queued = True
        self._boundary = self._held_back == 0 and self.micro_step + 1 >= self.config.accumulation
        for unit in self.units:
            unit.keep_after_backward(unit.kept and not self._boundary)
        self._sync.begin(self._boundary)
        # FSDP2 has queued its own end of the pass before: its hook on the same tensors is the older one.
        Variable._execution_engine.queue_callback(self._after_backward)

    def _after_backward(self) -> None:
        self._queued = False
        self._sync.end_pass()
        for unit in self.units:
            unit.calls = 0
        self.micro_step += 1
        if self._boundary:
            self._end()
        else:
            for unit in self.units:
                unit.show(whole=False)

    def _end(self) -> None:
        self._sync.finish()
        self.micro_step = 0
        for unit in self.units:
            unit.give_back()

    @property
    def synchronized(self) -> bool:
        """Whether gradients, where there are any, are averaged over the world: no accumulation is under way."""
        return self.micro_step == 0 and not self._sync.unseen

    def synchronize(self) -> None:
        """End the accumulation here, however many backward passes it had; a collective call of the world."""
        if self._queued:
            raise RuntimeError("synchronize() was called during a backward pass; call it when backward() has returned")
        if not self.synchronized:
            self._end()

    def discard(self) -> None:
        """Forget the gradients and begin a new accumulation."""
        for parameter in self.parameters():
            parameter.grad = None
        self._sync.end_pass()
        self._sync.unseen = False
        self.micro_step = 0
        for unit in self.units:
            unit.give_back()

    def reset(self) -> None:
        """After a forward or backward pass that raised: forget it, and all gradients, on every rank."""
        self.module.reset_iter_state()  # type: ignore[operator]
        self._queued = False
        for unit in self.units:
            unit.calls = 0
        self.discard()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Backward passes inside are no boundary, however many there were."""
        self._held_back += 1
        try:
            yield
        finally:
            self._held_back -= 1

    def parameters(self) -> list[nn.Parameter]:
        """All parameters as an optimizer sees them: DTensors over the partition group, and plain scalars."""
        return [*self.sharded, *self.plain]

    def gradients(self) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """This rank's parts of the gradients that there are, and the whole ones of scalars; they share memory."""
        sharded = [local(parameter.grad) for parameter in self.sharded if parameter.grad is not None]
        return sharded, [parameter.grad for parameter in self.plain if parameter.grad is not None]

    def gradient_norm(self, order: float = 2.0) -> float:
        """The norm of all gradients; a collective call. RuntimeError in the middle of an accumulation."""
        self._need_boundary("the norm of the gradients")
        sharded, plain = self.gradients()
        return global_norm(sharded, plain, self.mesh, order)

    def clip(self, limit: float, order: float = 2.0) -> float:
        """Scale the gradients down to the norm `limit` where theirs is more; returns what theirs was."""
        norm = self.gradient_norm(order)
        sharded, plain = self.gradients()
        scale_to([*sharded, *plain], norm, limit)
        return norm

    def unscale(self, scale: float, limit: float | None = None, agree: bool = True) -> float:
        """Divide the gradients by a loss scale and clip them by `limit`, in one pass; returns their norm, unscaled.

        A norm that is not finite is an overflow on some rank, is the same on all ranks, and leaves the gradients alone.
        `agree`: ask the other replicas, too, before a step is made or left out.
        """
        self._need_boundary("unscaling")
        sharded, plain = self.gradients()
        norm = global_norm(sharded, plain, self.mesh) / scale
        if agree:
            norm = self._world_norm(norm)
        if not math.isfinite(norm):
            return norm
        factor = 1.0 / scale
        if limit is not None:
            factor *= min(1.0, limit / (norm + 1e-6))
        if factor != 1.0:
            multiply([*sharded, *plain], factor)
        return norm

    def attach(self, optimizer: torch.optim.Optimizer) -> None:
        """Make `optimizer.step()` in the middle of an accumulation right (it ends it first), and every step cheap."""
        optimizer.register_step_pre_hook(lambda *_: self.synchronize())
        self._steps.append(LocalStep(optimizer))

    def _world_norm(self, norm: float) -> float:
        """Replicas hold equal gradients, so that they agree; a fault of one machine must not let them part."""
        if self.mesh.replicas == 1:
            return norm
        value = torch.tensor(norm if math.isfinite(norm) else math.inf, dtype=torch.float64, device=self.mesh.device)
        dist.all_reduce(value, op=dist.ReduceOp.MAX, group=self.mesh.replication_group)
        return float(value)

    def _need_boundary(self, what: str) -> None:
        if not self.synchronized:
            raise RuntimeError(
                f"{what}: {self.micro_step} of {self.config.accumulation} backward passes are done, and gradients are "
                "averaged over the replicas at the last alone. Call it there, or call synchronize() before."
            )


def _tensors(value: object) -> list[torch.Tensor]:
    """The tensors in an output: itself, or inside of lists, tuples, mappings and dataclass-like objects."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [tensor for item in value.values() for tensor in _tensors(item)]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _tensors(item)]
    if hasattr(value, "__dataclass_fields__"):
        return [tensor for name in value.__dataclass_fields__ for tensor in _tensors(getattr(value, name))]
    return []
