"""Our own process spawner: one command per local rank, told its numbers under torch's and Open MPI's names.

Every rank's lines, tagged, go to the stream of the gang's first host, as one mpirun would print them there.
"""

from trainshed_worker.launchers.gang_launch import GangLaunch
from trainshed_worker.launchers.types import Command, LaunchPlan
from trainshed_worker.launchers.variables import rank_variables, with_threads


def plan_ranks(launch: GangLaunch) -> LaunchPlan:
    """One command per process of this host."""
    gang = launch.gang
    variables = with_threads(launch.variables, launch.assignment, launch.environment, gang.processes)
    commands = []
    for local_rank in range(gang.processes):
        rank = gang.first_rank + local_rank
        commands.append(
            Command(
                argv=launch.user_argv,
                env={**variables, **rank_variables(gang, local_rank)},
                cwd=launch.cwd,
                stream=gang.lead,
                prefix=f"[1,{rank}]<stdout>:",
                rank=rank,
                local_rank=local_rank,
            )
        )
    return LaunchPlan(launch.launcher, commands, launch.notices, gang.processes)
