"""Functions of the library's first version: torch.distributed's, over the backend `smddp`."""

import os
from typing import Any

import torch.distributed as _torch
from torch.distributed import (
    ReduceOp,
    all_gather,
    all_reduce,
    all_to_all_single,
    barrier,
    broadcast,
    get_rank,
    get_world_size,
    group,
    is_available,
    is_initialized,
)

from smdistributed.dataparallel.torch import torch_smddp  # noqa: F401

__all__ = [
    "ReduceOp",
    "all_gather",
    "all_reduce",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "get_local_rank",
    "get_rank",
    "get_world_size",
    "group",
    "init_process_group",
    "is_available",
    "is_initialized",
]


def init_process_group(backend: str = "smddp", *args: Any, **options: Any) -> None:
    """torch.distributed.init_process_group; the launcher's variables tell rank and world."""
    _torch.init_process_group(backend, *args, **options)


def get_local_rank() -> int:
    """This process's place on its node, as its launcher tells it; 0 without a launcher."""
    for name in ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"):
        if os.environ.get(name, "").isdecimal():
            return int(os.environ[name])
    return 0
