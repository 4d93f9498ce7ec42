"""What `smp.init` has set up for this process, and the model and optimizer that were made since.

Invariant: there is one state per process, made by `init` before anything else; `current()` says so where it is missing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from smdistributed.modelparallel.torch.safe import register_types
from smdistributed.modelparallel.torch.settings import Settings, read_settings
from trainshed_runtime.mesh import MicsMesh

if TYPE_CHECKING:
    from smdistributed.modelparallel.torch.model import DistributedModel
    from smdistributed.modelparallel.torch.optimizer import DistributedOptimizer

logger = logging.getLogger("smdistributed.modelparallel")
_NUMBERS = (
    ("RANK", "OMPI_COMM_WORLD_RANK"),
    ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"),
    ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
)


@dataclass
class State:
    """This process's settings, mesh and device. `model` and `optimizer` are the last that were made."""

    settings: Settings
    mesh: MicsMesh
    device: torch.device
    model: DistributedModel | None = None
    optimizer: DistributedOptimizer | None = None
    alone: dict[str, dist.ProcessGroup] = field(default_factory=dict)

    def group_of_one(self) -> dist.ProcessGroup:
        """A process group of this rank alone: its tensor, pipeline and model parallel group."""
        if "alone" not in self.alone:
            self.alone["alone"] = dist.new_group([self.mesh.rank], use_local_synchronization=True)
        return self.alone["alone"]


_state: State | None = None


def init(config: Mapping[str, Any] | None = None) -> None:
    """Read the settings, join the process group (where the script has not) and make the mesh; a collective call.

    SettingsError for what is not supported, InvalidDegree for a degree that does not divide the ranks.
    """
    global _state
    if _state is not None:
        logger.warning("smp.init was called again; the first call's settings stay")
        return
    settings = read_settings(config)
    register_types()
    variables = _variables()
    use_cuda = torch.cuda.is_available()
    if use_cuda:
        torch.cuda.set_device(int(variables["LOCAL_RANK"]) % torch.cuda.device_count())
    if not dist.is_initialized():
        _join(settings, variables, use_cuda)
    mesh = MicsMesh.create(settings["sharded_data_parallel_degree"])
    _state = State(settings, mesh, mesh.device)
    if mesh.rank == 0:
        for notice in settings.notices:
            logger.warning("%s", notice)
        logger.info("smp: %s", mesh)


def is_initialized() -> bool:
    """Whether `init` has been called."""
    return _state is not None


def current() -> State:
    """The state. RuntimeError before `init`."""
    if _state is None:
        raise RuntimeError("smp.init() has not been called; call it before anything else of smp")
    return _state


def _variables() -> dict[str, str]:
    """Ranks under torch's names, from torch's or Open MPI's variables; a process alone is rank 0 of 1."""
    found = {}
    for name, other in _NUMBERS:
        found[name] = os.environ.get(name) or os.environ.get(other) or ("1" if name == "WORLD_SIZE" else "0")
        os.environ.setdefault(name, found[name])
    return found


def _join(settings: Settings, variables: Mapping[str, str], use_cuda: bool) -> None:
    backend = settings["ddp_dist_backend"]
    if backend == "auto" or (backend == "nccl" and not use_cuda):
        backend = "nccl" if use_cuda else "gloo"
    if backend == "smddp":
        import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401 - registers the backend
    if settings["ddp_port"] is not None:
        os.environ.setdefault("MASTER_PORT", str(settings["ddp_port"]))
    world = int(variables["WORLD_SIZE"])
    if "MASTER_ADDR" not in os.environ and world == 1:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
        return
    os.environ.setdefault("MASTER_PORT", "7777")
    dist.init_process_group(backend, rank=int(variables["RANK"]), world_size=world)
