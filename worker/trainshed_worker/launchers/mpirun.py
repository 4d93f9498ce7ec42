"""`mpi` and model parallel v1 where Open MPI 4 is in the environment: a real mpirun, our own agent instead of ssh.

The first host runs mpirun. Every other host runs `rsh/server.py`, which takes exactly one command (mpirun's daemon
`orted`) from the first host, runs it in this instance with this instance's own variables, and ends with its exit code.
Both sides prove that they know the attempt's gang secret. So mpirun starts processes inside the sandboxes, and the
supervisors own them like any other. Lines: mpirun tags and prints them all in the first host's stream.
"""

from pathlib import PurePosixPath

from trainshed_worker.launchers.gang_launch import GangLaunch
from trainshed_worker.launchers.mpi_options import MpiOptions
from trainshed_worker.launchers.support import RSH_FOLDER
from trainshed_worker.launchers.types import Command, LaunchPlan
from trainshed_worker.launchers.variables import find_command, switched_off, with_threads

RSH_PORT = 7779
"""Port of the exec server of the gang's second host; the third has the next one, and so on."""

SWITCH = "TRAINSHED_MPIRUN"
SECRET = "TRAINSHED_GANG_SECRET"
PEERS = "TRAINSHED_RSH_PEERS"

_WITHOUT = "ranks are started with the same variables, without mpirun and without an MPI library."


def find_mpirun(launch: GangLaunch) -> PurePosixPath | None:
    """Open MPI's mpirun on the job's PATH (its daemon `orted` as well), or None with the reason as a notice."""
    if switched_off(launch.assignment, SWITCH):
        launch.notices.append(f"{SWITCH} is off: {_WITHOUT}")
        return None
    found = find_command("mpirun", launch.environment)
    if found is None or find_command("orted", launch.environment) is None:
        launch.notices.append(f"The environment has no Open MPI 4 (mpirun and orted): {_WITHOUT}")
        return None
    if launch.gang.nodes > 1 and not launch.assignment.gang_secret:
        launch.notices.append(f"The service sent no secret for the hosts of this attempt: {_WITHOUT}")
        return None
    return found


def plan_mpirun(launch: GangLaunch, mpirun: PurePosixPath, options: MpiOptions) -> LaunchPlan:
    """mpirun on the gang's first host, the exec server on the others."""
    gang = launch.gang
    variables = with_threads(launch.variables, launch.assignment, launch.environment, gang.processes)
    variables[SECRET] = launch.assignment.gang_secret or ""
    # the daemons look for the agent on their own PATH as well, although they never start it
    variables["PATH"] = f"{RSH_FOLDER}:{variables['PATH']}"
    variables["TRAINSHED_RSH_PYTHON"] = str(launch.environment.python)
    command = _lead(launch, variables, mpirun, options) if gang.node_rank == 0 else _server(launch, variables)
    return LaunchPlan(launch.launcher, [command], launch.notices, gang.processes)


def _lead(launch: GangLaunch, variables: dict[str, str], mpirun: PurePosixPath, options: MpiOptions) -> Command:
    gang = launch.gang
    variables[PEERS] = ",".join(f"{host.name}={_port(index)}" for index, host in enumerate(gang.hosts) if index > 0)
    argv = [str(mpirun), "--allow-run-as-root", "--tag-output", "--leave-session-attached"]
    argv += ["--host", ",".join(f"{host.name}:{gang.processes}" for host in gang.hosts), "-np", str(gang.world_size)]
    argv += ["--bind-to", "none", "--map-by", "slot"]
    for name, value in _mca(variables.get("SM_NETWORK_INTERFACE_NAME")).items():
        argv += ["--mca", name, value]
    for name in options.variables:
        argv += ["-x", name]
    argv += [str(launch.environment.python), "-I", "-S", str(RSH_FOLDER / "rank_exec.py"), *launch.user_argv]
    return Command(argv=argv, env=variables, cwd=launch.cwd, stream=gang.lead)


def _mca(interface: str | None) -> dict[str, str]:
    """Parameters that keep mpirun inside the cluster's network and out of what a sandbox does not allow."""
    parameters = {
        "plm": "rsh",
        "plm_rsh_agent": "trainshed-rsh",
        "plm_rsh_no_tree_spawn": "1",
        "btl": "self,vader,tcp",
        "pml": "ob1",
        "btl_vader_single_copy_mechanism": "none",
    }
    if interface:
        parameters["btl_tcp_if_include"] = interface
        parameters["oob_tcp_if_include"] = interface
    return parameters


def _server(launch: GangLaunch, variables: dict[str, str]) -> Command:
    argv = [
        str(launch.environment.python),
        "-I",
        "-S",
        str(RSH_FOLDER / "server.py"),
        "--port",
        str(_port(launch.gang.node_rank)),
    ]
    return Command(argv=argv, env=variables, cwd=launch.cwd, stream=launch.host)


def _port(index: int) -> int:
    return RSH_PORT + index - 1
