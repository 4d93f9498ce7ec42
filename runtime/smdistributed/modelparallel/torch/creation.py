"""How modules are made and marked: `model_creation`, delayed initialization, partitions, activation checkpointing.

Invariant: marks for tensor and pipeline parallelism are taken where they ask for what there is (one rank of each), and
refused where they ask for more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from smdistributed.modelparallel.torch.state import current
from trainshed_runtime.engine import Engine
from trainshed_runtime.engine.recompute import set_checkpointing
from trainshed_runtime.mesh import MicsMesh


@contextmanager
def model_creation(
    tensor_parallelism: bool = False, dtype: torch.dtype | None = None, **tensor_parallel_config: Any
) -> Iterator[None]:
    """Modules that are made inside have parameters of `dtype`; with delayed initialization, none yet.

    Under fp16 and bf16 the master weights are float32 whatever `dtype` says, as numbers that are lost at creation
    cannot come back. `tensor_parallelism` and its options choose nothing here, as there is one tensor-parallel rank.
    """
    settings = current().settings
    before = torch.get_default_dtype()
    wanted = before if dtype is None or (settings.half and dtype in (torch.float16, torch.bfloat16)) else dtype
    torch.set_default_dtype(wanted)
    try:
        with delay_param_initialization(bool(settings["delayed_parameter_initialization"])):
            yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def delay_param_initialization(enabled: bool = True) -> Iterator[None]:
    """Modules that are made inside get their weights in DistributedModel, one whole parameter at a time."""
    if not enabled:
        yield
        return
    from trainshed_runtime.engine.deferred import recording

    with recording():
        yield


@contextmanager
def materialized(module: nn.Module, mesh: MicsMesh) -> Iterator[Callable[[Engine], None]]:
    """Around the sharding of a module: the function it gives fills in what is still to be initialized."""
    if all(parameter.device.type != "meta" for parameter in module.parameters()):
        yield lambda engine: None
        return
    from trainshed_runtime.engine.deferred import is_recording, plan_of

    if is_recording():
        raise RuntimeError("leave model_creation (or delay_param_initialization) before making the DistributedModel")
    plan = plan_of(module)
    yield lambda engine: plan.fill(module, mesh.device)


def set_activation_checkpointing(
    module: nn.Module,
    preserve_rng_state: bool = True,
    pack_args_as_tuple: bool = False,
    strategy: str = "each",
) -> None:
    """Checkpoint a module, or the layers of an nn.Sequential by `strategy`: each, contiguous or group_N.

    With `offload_activations`, what the layers keep waits in host memory.
    """
    model = current().model
    offload = model.offload if model is not None else None
    if current().settings["offload_activations"] and model is None:
        raise RuntimeError("with offload_activations, make the DistributedModel before set_activation_checkpointing")
    set_checkpointing(module, strategy, preserve_rng_state, pack_args_as_tuple, offload)


@contextmanager
def partition(index: int) -> Iterator[None]:
    """Modules made inside belong to pipeline partition `index`: 0, the only one."""
    _check_partition(index)
    yield


def set_partition(module: nn.Module, index: int) -> None:
    """Assign a module to pipeline partition `index`: 0, the only one."""
    del module
    _check_partition(index)


@contextmanager
def tensor_parallelism(enabled: bool = True, **tensor_parallel_config: Any) -> Iterator[None]:
    """Modules made inside would be divided over tensor-parallel ranks; there is one, so they stay whole."""
    current()
    yield


def set_tensor_parallelism(module: nn.Module, enabled: bool = True, **tensor_parallel_config: Any) -> None:
    """As `tensor_parallelism`, for one module."""
    current()


def tp_register(distributed_module: type[nn.Module], *hooks: Callable[..., Any]) -> Callable[[type[Any]], type[Any]]:
    """A class decorator that would say which distributed module stands in for a class; never needed with one rank."""
    return lambda original: original


def tp_register_with_module(
    original: type[nn.Module], distributed: type[nn.Module], *hooks: Callable[..., Any]
) -> None:
    """As `tp_register`, for a class that is there already."""


def is_tracing() -> bool:
    """Never: modules are not traced."""
    return False


def _check_partition(index: int) -> None:
    current()
    if index != 0:
        raise ValueError(f"partition {index} is not there: pipeline_parallel_degree is 1, so 0 is the only partition")
