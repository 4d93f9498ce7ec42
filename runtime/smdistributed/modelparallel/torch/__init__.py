"""`import smdistributed.modelparallel.torch as smp`: sharded data parallelism for scripts written for SageMaker.

Invariant: this package decides nothing about training; it reads settings, keeps the names of the API and asks
`trainshed_runtime.engine`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from smdistributed.modelparallel.torch import amp, nn, optimizers, patches
from smdistributed.modelparallel.torch.comm import (
    allgather,
    barrier,
    broadcast,
    dp_barrier,
    mp_barrier,
    pp_barrier,
    rdp_barrier,
    recv_from,
    send,
    tp_barrier,
)
from smdistributed.modelparallel.torch.creation import (
    delay_param_initialization,
    is_tracing,
    model_creation,
    partition,
    set_activation_checkpointing,
    set_partition,
    set_tensor_parallelism,
    tensor_parallelism,
    tp_register,
    tp_register_with_module,
)
from smdistributed.modelparallel.torch.microbatches import StepOutput, step
from smdistributed.modelparallel.torch.model import DistributedModel
from smdistributed.modelparallel.torch.optimizer import DistributedOptimizer
from smdistributed.modelparallel.torch.ranks import (
    DP_GROUP,
    MP_GROUP,
    PP_GROUP,
    RDP_GROUP,
    TP_GROUP,
    WORLD,
    CommGroup,
    RankType,
    dp_rank,
    dp_size,
    get_dp_group,
    get_dp_process_group,
    get_mp_group,
    get_mp_process_group,
    get_pp_group,
    get_pp_process_group,
    get_rdp_group,
    get_rdp_process_group,
    get_tp_group,
    get_tp_process_group,
    get_world_process_group,
    local_rank,
    local_size,
    mp_rank,
    mp_size,
    pp_rank,
    pp_size,
    rank,
    rdp_rank,
    rdp_size,
    size,
    tp_rank,
    tp_size,
)
from smdistributed.modelparallel.torch.safe import register_types
from smdistributed.modelparallel.torch.settings import SettingsError
from smdistributed.modelparallel.torch.state import init, is_initialized

register_types()
_CHECKPOINTS = ("load", "resume_from_checkpoint", "save", "save_checkpoint")
__all__ = [
    "DP_GROUP",
    "MP_GROUP",
    "PP_GROUP",
    "RDP_GROUP",
    "TP_GROUP",
    "WORLD",
    "CommGroup",
    "DistributedModel",
    "DistributedOptimizer",
    "RankType",
    "SettingsError",
    "StepOutput",
    "allgather",
    "amp",
    "barrier",
    "broadcast",
    "delay_param_initialization",
    "dp_barrier",
    "dp_rank",
    "dp_size",
    "get_dp_group",
    "get_dp_process_group",
    "get_mp_group",
    "get_mp_process_group",
    "get_pp_group",
    "get_pp_process_group",
    "get_rdp_group",
    "get_rdp_process_group",
    "get_tp_group",
    "get_tp_process_group",
    "get_world_process_group",
    "init",
    "is_initialized",
    "is_tracing",
    "local_rank",
    "local_size",
    "model_creation",
    "mp_barrier",
    "mp_rank",
    "mp_size",
    "nn",
    "optimizers",
    "partition",
    "patches",
    "pp_barrier",
    "pp_rank",
    "pp_size",
    "rank",
    "rdp_barrier",
    "rdp_rank",
    "rdp_size",
    "recv_from",
    "send",
    "set_activation_checkpointing",
    "set_partition",
    "set_tensor_parallelism",
    "size",
    "step",
    "tensor_parallelism",
    "tp_barrier",
    "tp_rank",
    "tp_register",
    "tp_register_with_module",
    "tp_size",
]


def __getattr__(name: str) -> Any:
    """Checkpoint functions are loaded when they are first used: most of a job needs none of what they import."""
    if name in _CHECKPOINTS:
        return getattr(import_module("smdistributed.modelparallel.torch.checkpoints"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
