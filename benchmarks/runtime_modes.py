"""The ways of training that the runtime's benchmark compares: each gives a function that does one optimizer step.

Each peer is at its best settings for these links: the root is resharded as the blocks are (else nothing is compared),
gradients are accumulated where the mode can, and the optimizer is the same AdamW. Modes that need a package of their
own import it inside.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

from benchmarks.runtime_model import Block, Layer, batches, make
from benchmarks.runtime_shape import Shape

Step = Callable[[], float]
RATE = 1e-3


def build(mode: str, shape: Shape, accumulation: int, per_node: int) -> Step:
    """One optimizer step of the mode; gives back the mean loss of this rank's micro-batches."""
    maker = MODES[mode]
    return maker(shape, accumulation, per_node)


def _fsdp(mesh: DeviceMesh, shape: Shape) -> nn.Module:
    model = make(shape)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=True)
    fully_shard(model, mesh=mesh, reshard_after_forward=True)
    return model


def full_shard(shape: Shape, accumulation: int, per_node: int) -> Step:
    """FSDP2, parameters sharded over the world, gloo's collectives."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return _stepping(_fsdp(mesh, shape), shape, accumulation)


def full_shard_ring(shape: Shape, accumulation: int, per_node: int) -> Step:
    """The same, but with our ring reduce-scatter, since gloo's own costs as much as an all-reduce."""
    from trainshed_runtime.collectives import Communicator, CustomReduceScatter

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = _fsdp(mesh, shape)
    scatter = CustomReduceScatter(Communicator.of_group(mesh.get_group(), flat=True))
    for module in _wrapped(model):
        module.set_custom_reduce_scatter(scatter)
    return _stepping(model, shape, accumulation)


def hybrid(shape: Shape, accumulation: int, per_node: int) -> Step:
    """FSDP2's hybrid sharding: a node holds the model once; gradients are all-reduced in every micro-step."""
    return _stepping(_fsdp(_two_levels(per_node), shape), shape, accumulation)


def hybrid_two_hop(shape: Shape, accumulation: int, per_node: int) -> Step:
    """Hybrid sharding by plain FSDP2 calls with the all-reduce in the last micro-step alone."""
    model = _fsdp(_two_levels(per_node), shape)
    return _stepping(model, shape, accumulation, lambda last: model.set_requires_all_reduce(last))  # type: ignore[attr-defined]


def ddp(shape: Shape, accumulation: int, per_node: int) -> Step:
    """DDP over gloo; gradients are all-reduced in the last micro-step alone."""
    return _ddp(DistributedDataParallel(make(shape), gradient_as_bucket_view=True), shape, accumulation)


def ddp_smddp(shape: Shape, accumulation: int, per_node: int) -> Step:
    """The same over the backend smddp."""
    import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401

    group = dist.new_group(backend="smddp")
    model = DistributedDataParallel(make(shape), process_group=group, gradient_as_bucket_view=True)
    return _ddp(model, shape, accumulation)


def ours(shape: Shape, accumulation: int, per_node: int) -> Step:
    """The engine: a partition group is a node, or two nodes where `per_node` ranks are not enough."""
    return _engine(shape, accumulation, per_node)


def ours_two_nodes(shape: Shape, accumulation: int, per_node: int) -> Step:
    """The engine with partition groups over two nodes: hierarchical gathers and scatters."""
    return _engine(shape, accumulation, 2 * per_node)


def zero3(shape: Shape, accumulation: int, per_node: int) -> Step:
    """DeepSpeed ZeRO-3, with limits that make it reshard; by default it would keep a model of this size gathered."""
    import sys
    import types

    import deepspeed.comm.torch  # type: ignore[import-not-found]

    # Its shared-memory operator is built by a compiler at run time and is for one machine; without it, gloo is used.
    module: Any = sys.modules["deepspeed.comm.torch"]
    module.build_shm_op = lambda: None
    assert isinstance(module, types.ModuleType)
    import deepspeed  # type: ignore[import-not-found]

    model = make(shape)
    engine, _, _, _ = deepspeed.initialize(
        model=model,
        model_parameters=list(model.parameters()),
        dist_init_required=False,
        config={
            "train_micro_batch_size_per_gpu": shape.batch,
            "gradient_accumulation_steps": accumulation,
            "optimizer": {"type": "AdamW", "params": {"lr": RATE, "torch_adam": True}},
            "zero_optimization": {
                "stage": 3,
                "stage3_param_persistence_threshold": 0,
                "stage3_max_live_parameters": 4_000_000,
                "stage3_max_reuse_distance": 1000,
                "overlap_comm": False,
            },
            "zero_allow_untested_optimizer": True,
            "steps_per_print": 1_000_000,
        },
    )
    own = batches(shape, accumulation, dist.get_rank())

    def step() -> float:
        total = 0.0
        for batch in own:
            loss = engine(batch)
            engine.backward(loss)
            engine.step()
            total += loss.item() / accumulation
        return total

    return step


MODES: dict[str, Callable[[Shape, int, int], Step]] = {
    "fsdp": full_shard,
    "fsdp_ring": full_shard_ring,
    "hybrid": hybrid,
    "hybrid_2hop": hybrid_two_hop,
    "ddp": ddp,
    "ddp_smddp": ddp_smddp,
    "ours": ours,
    "ours_2nodes": ours_two_nodes,
    "zero3": zero3,
}


def _two_levels(per_node: int) -> DeviceMesh:
    shape = (dist.get_world_size() // per_node, per_node)
    return init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))


def _wrapped(model: nn.Module) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, FSDPModule)]


def _stepping(
    model: nn.Module, shape: Shape, accumulation: int, before: Callable[[bool], None] = lambda last: None
) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    own = batches(shape, accumulation, dist.get_rank())

    def step() -> float:
        total = 0.0
        for index, batch in enumerate(own):
            before(index == accumulation - 1)
            loss = model(batch) / accumulation
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        return total

    return step


def _ddp(model: DistributedDataParallel, shape: Shape, accumulation: int) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    own = batches(shape, accumulation, dist.get_rank())

    def step() -> float:
        total = 0.0
        for index, batch in enumerate(own):
            with nullcontext() if index == accumulation - 1 else model.no_sync():
                loss = model(batch) / accumulation
                loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        return total

    return step


def _engine(shape: Shape, accumulation: int, degree: int) -> Step:
    from trainshed_runtime.engine import Engine, EngineConfig
    from trainshed_runtime.mesh import MicsMesh

    model = make(shape)
    engine = Engine(model, MicsMesh.create(degree), EngineConfig(accumulation=accumulation), blocks=[Block, Layer])
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    engine.attach(optimizer)
    own = batches(shape, accumulation, dist.get_rank())

    def step() -> float:
        total = 0.0
        for batch in own:
            loss = model(batch) / accumulation
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        return total

    return step
