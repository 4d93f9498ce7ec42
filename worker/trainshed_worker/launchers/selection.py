"""Which launcher a job gets. The order of the questions is the contract:

1. ContainerEntrypoint / ContainerArguments run as they are.
2. Without `sagemaker_program`: the environment's `train` command.
3. A distribution's hyperparameter chooses torchrun, our ranks or mpirun.
4. Otherwise the entry point runs once per host.
"""

from dataclasses import replace

from trainshed_worker.launchers.container import own_command, plan_own_command, plan_train
from trainshed_worker.launchers.gang import gang, members, processes_per_host
from trainshed_worker.launchers.gang_launch import GangLaunch
from trainshed_worker.launchers.hyperparameters import Hyperparameters
from trainshed_worker.launchers.mpi_options import parse
from trainshed_worker.launchers.mpirun import find_mpirun, plan_mpirun
from trainshed_worker.launchers.program import find_program
from trainshed_worker.launchers.ranks import plan_ranks
from trainshed_worker.launchers.torchrun import plan_torchrun
from trainshed_worker.launchers.types import Command, Environment, LaunchPlan, LaunchRefused, Layout
from trainshed_worker.launchers.variables import base, stands_in, with_threads
from trainshed_worker.protocol import Assignment, FailureCause

TORCHRUN = "sagemaker_torch_distributed_enabled"
DATA_PARALLEL = ("sagemaker_distributed_dataparallel_enabled", "sagemaker_pytorch_ddp_enabled")
DATA_PARALLEL_OPTIONS = "sagemaker_distributed_dataparallel_custom_mpi_options"
MPI = "sagemaker_mpi_enabled"
MPI_PROCESSES = "sagemaker_mpi_num_of_processes_per_host"
MPI_OPTIONS = "sagemaker_mpi_custom_mpi_options"
MODEL_PARALLEL = "mp_parameters"

_REFUSED = {
    "sagemaker_parameter_server_enabled": "parameter_server is a TensorFlow and MXNet distribution; PyTorch has none",
    "sagemaker_multi_worker_mirrored_strategy_enabled": "multi_worker_mirrored_strategy is a TensorFlow distribution",
    "sagemaker_pytorch_xla_multi_worker_enabled": "pytorchxla needs a TPU or Trainium device, which no node has",
}


def select(assignment: Assignment, layout: Layout, environment: Environment) -> LaunchPlan:
    """See the module's docstring."""
    hyperparameters = Hyperparameters(assignment.request.get("HyperParameters") or {})
    notices: list[str] = []
    if assignment.stand_in:
        notices.append(_standin_notice(assignment))
    words = own_command(assignment)
    if words:
        return plan_own_command(words, assignment, layout, environment, notices)
    name = hyperparameters.text("sagemaker_program")
    if name is None:
        return plan_train(assignment, layout, environment, notices)
    for key, reason in _REFUSED.items():
        if hyperparameters.flag(key):
            raise LaunchRefused(
                FailureCause.UNSUPPORTED,
                f"{reason}. Use torch_distributed, pytorchddp, smdistributed.dataparallel or mpi.",
            )
    program = find_program(name, layout, environment)
    hosts = members(assignment, hyperparameters)
    launch = GangLaunch(
        launcher="script",
        gang=gang(assignment, hosts, 1),
        program=program,
        variables=base(assignment, layout, environment, hosts[0].name),
        assignment=assignment,
        environment=environment,
        cwd=str(layout.inside(layout.ml / "code")),
        notices=notices,
    )
    if launch.gang.index is None:
        return plan_script(launch)
    if hyperparameters.flag(TORCHRUN):
        processes = processes_per_host(assignment, None, notices)
        return plan_torchrun(replace(launch, launcher="torch_distributed", gang=gang(assignment, hosts, processes)))
    if any(hyperparameters.flag(key) for key in DATA_PARALLEL):
        return _data_parallel(launch, hyperparameters)
    if hyperparameters.flag(MPI):
        return _mpi(launch, hyperparameters)
    return plan_script(launch)


def plan_script(launch: GangLaunch) -> LaunchPlan:
    """The entry point once on this host, without ranks."""
    variables = with_threads(launch.variables, launch.assignment, launch.environment, 1)
    command = Command(argv=launch.user_argv, env=variables, cwd=launch.cwd, stream=launch.host)
    return LaunchPlan(launch.launcher, [command], launch.notices)


def _data_parallel(launch: GangLaunch, hyperparameters: Hyperparameters) -> LaunchPlan:
    options = parse(hyperparameters.text(DATA_PARALLEL_OPTIONS), launch.variables)
    launch.notices.extend(options.notices())
    processes = processes_per_host(launch.assignment, None, launch.notices)
    return plan_ranks(
        replace(
            launch,
            launcher="smdistributed.dataparallel",
            gang=gang(launch.assignment, launch.gang.hosts, processes),
            variables={**launch.variables, **options.variables},
        )
    )


def _mpi(launch: GangLaunch, hyperparameters: Hyperparameters) -> LaunchPlan:
    options = parse(hyperparameters.text(MPI_OPTIONS), launch.variables)
    launch.notices.extend(options.notices())
    processes = processes_per_host(launch.assignment, hyperparameters.positive(MPI_PROCESSES), launch.notices)
    model_parallel = hyperparameters.text(MODEL_PARALLEL) not in {None, "{}"}
    launch = replace(
        launch,
        launcher="smdistributed.modelparallel" if model_parallel else "mpi",
        gang=gang(launch.assignment, launch.gang.hosts, processes),
        variables={**launch.variables, **options.variables},
    )
    mpirun = find_mpirun(launch)
    return plan_ranks(launch) if mpirun is None else plan_mpirun(launch, mpirun, options)


def _standin_notice(assignment: Assignment) -> str:
    shim = "on (TRAINSHED_STANDIN=0 in Environment: off)" if stands_in(assignment) else "off (TRAINSHED_STANDIN)"
    return (
        f"This instance stands in for {assignment.host.instance_type} on the CPU and shows {assignment.accelerators} "
        f"devices; the shim that maps nccl to gloo and CUDA calls to the CPU is {shim}."
    )
