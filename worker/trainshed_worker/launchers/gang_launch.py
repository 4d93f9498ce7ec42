"""What every launcher of a gang is given."""

from dataclasses import dataclass

from trainshed_worker.contract import raw_hyperparameters, script_arguments
from trainshed_worker.launchers.gang import Gang
from trainshed_worker.launchers.program import Program
from trainshed_worker.launchers.types import Environment
from trainshed_worker.protocol import Assignment


@dataclass(frozen=True)
class GangLaunch:
    """One host's share of a distribution. `variables` is this launch's own copy and `notices` is added to."""

    launcher: str
    gang: Gang
    program: Program
    variables: dict[str, str]
    assignment: Assignment
    environment: Environment
    cwd: str
    notices: list[str]

    @property
    def host(self) -> str:
        return self.assignment.host.name

    @property
    def arguments(self) -> list[str]:
        """The user's hyperparameters as argv words."""
        return script_arguments(raw_hyperparameters(self.assignment.request))

    @property
    def user_argv(self) -> list[str]:
        """The entry point and its arguments as one process runs them."""
        return [*self.program.argv, *self.arguments]
