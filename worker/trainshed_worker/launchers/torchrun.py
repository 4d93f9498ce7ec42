"""`torch_distributed` and model parallel v2: torch's own launcher on every host, lines in the host's own stream."""

from trainshed_worker.launchers.gang_launch import GangLaunch
from trainshed_worker.launchers.types import Command, LaunchPlan
from trainshed_worker.launchers.variables import with_threads


def plan_torchrun(launch: GangLaunch) -> LaunchPlan:
    """One launcher process per host with a static rendezvous on the first host."""
    gang, program = launch.gang, launch.program
    variables = with_threads(launch.variables, launch.assignment, launch.environment, gang.processes)
    variables.setdefault("NCCL_PROTO", "simple")
    argv = [
        str(launch.environment.python),
        "-m",
        "torch.distributed.run",
        f"--nnodes={gang.nodes}",
        f"--nproc_per_node={gang.processes}",
        f"--node_rank={gang.node_rank}",
        f"--master_addr={variables['MASTER_ADDR']}",
        f"--master_port={variables['MASTER_PORT']}",
    ]
    argv += program.target if program.is_python else ["--no-python", *program.argv]
    argv += launch.arguments
    command = Command(argv=argv, env=variables, cwd=launch.cwd, stream=launch.host)
    return LaunchPlan(launch.launcher, [command], launch.notices, gang.processes)
