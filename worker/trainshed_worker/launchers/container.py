"""Jobs that bring their own command: ContainerEntrypoint and ContainerArguments, or the `train` command."""

from trainshed_worker.data.tree import read_head
from trainshed_worker.launchers.types import Command, Environment, LaunchPlan, LaunchRefused, Layout
from trainshed_worker.launchers.variables import base, find_command, with_threads
from trainshed_worker.protocol import Assignment, FailureCause

_SCRIPT = "sm_drivers/sm_train.sh"
_MAX_SCRIPT = 1 << 20
_MPI_DRIVER = b"distributed_drivers/mpi_driver.py"


def own_command(assignment: Assignment) -> list[str]:
    """The words of ContainerEntrypoint and ContainerArguments; empty where the request has neither."""
    algorithm = assignment.request.get("AlgorithmSpecification") or {}
    return [*(algorithm.get("ContainerEntrypoint") or []), *(algorithm.get("ContainerArguments") or [])]


def plan_own_command(
    argv: list[str], assignment: Assignment, layout: Layout, environment: Environment, notices: list[str]
) -> LaunchPlan:
    """Runs the words as they are, on every host, in its own stream; refuses SDK v3's MPI driver."""
    _refuse_ssh_driver(argv, layout)
    return _plan("container command", argv, assignment, layout, environment, notices)


def plan_train(assignment: Assignment, layout: Layout, environment: Environment, notices: list[str]) -> LaunchPlan:
    """Runs the environment's `train` command, as SageMaker runs an image without an entry point of its own."""
    return _plan("train command", ["train"], assignment, layout, environment, notices)


def _plan(
    launcher: str,
    argv: list[str],
    assignment: Assignment,
    layout: Layout,
    environment: Environment,
    notices: list[str],
) -> LaunchPlan:
    if "/" not in argv[0] and find_command(argv[0], environment) is None:
        raise LaunchRefused(FailureCause.USER_INPUT, _absent(argv[0]))
    variables = base(assignment, layout, environment, assignment.hosts[0].name)
    variables = with_threads(variables, assignment, environment, max(assignment.accelerators, 1))
    code = layout.ml / "code"
    cwd = layout.inside(code if code.is_dir() else layout.ml)
    command = Command(argv=argv, env=variables, cwd=str(cwd), stream=assignment.host.name)
    return LaunchPlan(launcher, [command], notices)


def _absent(name: str) -> str:
    if name == "train":
        return (
            "The job names no entry point (hyperparameter sagemaker_program) and no ContainerEntrypoint, so the "
            "command 'train' of its environment should run; the environment has no such command."
        )
    return f"The command {name!r} of ContainerEntrypoint or ContainerArguments was not found on the environment's PATH."


def _refuse_ssh_driver(argv: list[str], layout: Layout) -> None:
    if not any("sm_drivers/sm_train.sh" in word for word in argv):
        return
    script = read_head(layout.input_data, _SCRIPT, _MAX_SCRIPT)
    if script is not None and _MPI_DRIVER in script:
        raise LaunchRefused(
            FailureCause.UNSUPPORTED,
            "The MPI() driver of SageMaker SDK v3 reaches the other hosts by SSH, which instances here do not run. Use "
            "distributed=Torchrun(process_count_per_node=...) instead, or the SDK v2 distribution {'mpi': ...}.",
        )
