"""The environment variables that every process of a job gets on top of the container contract's.

Invariant: a variable that the job's own Environment sets is never changed, with two exceptions that are extended and not
replaced: PATH and PYTHONPATH.
"""

import os
from pathlib import Path

from trainshed_worker.launchers.gang import Gang
from trainshed_worker.launchers.support import standin_path
from trainshed_worker.launchers.types import MASTER_PORT, Environment, LaunchRefused, Layout
from trainshed_worker.protocol import Assignment, FailureCause

STANDIN_SWITCH = "TRAINSHED_STANDIN"
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def base(assignment: Assignment, layout: Layout, environment: Environment, lead: str) -> dict[str, str]:
    """What holds for every launcher: the contract's variables, PATH, the rendezvous, the code folder, the stand-in."""
    variables = dict(environment.variables)
    variables["PATH"] = os.pathsep.join(
        _unique([*map(str, environment.path), *variables.get("PATH", "").split(os.pathsep)])
    )
    variables.setdefault("MASTER_ADDR", lead)
    variables.setdefault("MASTER_PORT", str(MASTER_PORT))
    variables.setdefault("PYTHONUNBUFFERED", "1")
    interface = variables.get("SM_NETWORK_INTERFACE_NAME")
    if interface:
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
            variables.setdefault(name, interface)
    variables.setdefault("NCCL_IB_DISABLE", "1")
    paths = [str(layout.opt_ml / "code"), *variables.get("PYTHONPATH", "").split(os.pathsep)]
    if stands_in(assignment, variables):
        paths.insert(0, str(_standin_folder()))
    variables["PYTHONPATH"] = os.pathsep.join(_unique(paths))
    return variables


def with_threads(
    variables: dict[str, str], assignment: Assignment, environment: Environment, processes: int
) -> dict[str, str]:
    """A copy with thread counts for one process, so that the instance's processes share its cores and no more.

    Instances of one job that share this machine share its cores, too.
    """
    together = sum(1 for host in assignment.hosts if host.agent_id == assignment.host.agent_id)
    cores = max(1, min(assignment.vcpus, environment.cpus // max(together, 1)))
    threads = str(max(1, cores // processes))
    return {**{name: threads for name in _THREAD_VARIABLES}, **variables}


def rank_variables(gang: Gang, local_rank: int) -> dict[str, str]:
    """What one process of this host is told: torch's names and Open MPI's names for the same numbers."""
    rank = gang.first_rank + local_rank
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(gang.world_size),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(gang.processes),
        "GROUP_RANK": str(gang.node_rank),
        "NODE_RANK": str(gang.node_rank),
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(gang.world_size),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(local_rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(gang.processes),
        "OMPI_COMM_WORLD_NODE_RANK": str(local_rank),
    }


def stands_in(assignment: Assignment, variables: dict[str, str]) -> bool:
    """Whether the stand-in shim is on: the type's accelerators are absent and the job did not switch it off."""
    return assignment.stand_in and variables.get(STANDIN_SWITCH, "1").strip().lower() not in {"0", "false", "off", "no"}


def _standin_folder() -> Path:
    folder = standin_path()
    if folder is None:
        raise LaunchRefused(
            FailureCause.NODE,
            "This instance stands in for a type with accelerators, but the node has no trainshed_runtime to do it with. "
            "Install the extra 'runtime' on the node, or set TRAINSHED_STANDIN=0 in the job's Environment.",
        )
    return folder


def _unique(words: list[str]) -> list[str]:
    return list(dict.fromkeys(word for word in words if word))
