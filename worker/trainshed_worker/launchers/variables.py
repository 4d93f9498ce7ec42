"""What the launchers add to the container contract's variables.

Invariant: a variable that the job's own Environment sets is never changed, except that PYTHONPATH is extended.
"""

import os
import shutil
from pathlib import Path, PurePosixPath

from trainshed_worker.launchers.gang import Gang
from trainshed_worker.launchers.support import standin_path
from trainshed_worker.launchers.types import Environment, LaunchRefused, Layout
from trainshed_worker.protocol import Assignment, FailureCause

STANDIN_SWITCH = "TRAINSHED_STANDIN"
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def base(assignment: Assignment, layout: Layout, environment: Environment, lead: str) -> dict[str, str]:
    """What holds for every launcher: the contract's variables, the gang's first host, the code folder, the stand-in."""
    variables = {**environment.variables}
    if "MASTER_ADDR" not in users_own(assignment):
        variables["MASTER_ADDR"] = lead
    paths = [str(layout.inside(layout.ml / "code")), *variables.get("PYTHONPATH", "").split(os.pathsep)]
    if stands_in(assignment):
        paths.insert(0, str(_standin_folder()))
    variables["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(path for path in paths if path))
    return variables


def with_threads(
    variables: dict[str, str], assignment: Assignment, environment: Environment, processes: int
) -> dict[str, str]:
    """A copy with thread counts for one process, so that the instance's processes share its cores and no more.

    Instances of the same job that stand on one machine share that machine's cores, too.
    """
    together = sum(1 for host in assignment.hosts if host.agent_id == assignment.host.agent_id)
    cores = max(1, min(assignment.vcpus, environment.cpus // max(together, 1)))
    threads = str(max(1, cores // processes))
    own = users_own(assignment)
    return {**variables, **{name: threads for name in _THREAD_VARIABLES if name not in own}}


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


def users_own(assignment: Assignment) -> dict[str, str]:
    """The request's Environment."""
    return dict(assignment.request.get("Environment") or {})


def switched_off(assignment: Assignment, name: str) -> bool:
    """Whether the job's Environment turns a switch of ours off."""
    return users_own(assignment).get(name, "1").strip().lower() in {"0", "false", "off", "no"}


def stands_in(assignment: Assignment) -> bool:
    """Whether the stand-in shim is on: the type's accelerators are absent and the job did not switch it off."""
    return assignment.stand_in and not switched_off(assignment, STANDIN_SWITCH)


def find_command(name: str, environment: Environment) -> PurePosixPath | None:
    """A command on the job's PATH, as its processes see it; None where there is none."""
    for word in environment.variables.get("PATH", "").split(os.pathsep):
        if not word:
            continue
        folder = PurePosixPath(word)
        if shutil.which(name, path=str(_on_node(folder, environment))) is not None:
            return folder / name
    return None


def _on_node(folder: PurePosixPath, environment: Environment) -> Path:
    for inside, host in environment.mounts.items():
        if folder.is_relative_to(inside):
            return host / folder.relative_to(inside)
    return Path(folder)


def _standin_folder() -> Path:
    folder = standin_path()
    if folder is None:
        raise LaunchRefused(
            FailureCause.NODE,
            "This instance stands in for a type with accelerators, but the node has no trainshed_runtime to do it "
            "with. Install the extra 'runtime' on the node, or set TRAINSHED_STANDIN=0 in the job's Environment.",
        )
    return folder
