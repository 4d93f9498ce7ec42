"""What a launch plan is made from and what it consists of; nothing here does any work.

Invariant: a plan is complete. The supervisor starts each command with exactly its `argv`, `env` and `cwd`; it adds and
looks up nothing, so what a plan says in a test is what runs in a sandbox.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from trainshed_worker.protocol import FailureCause

MASTER_PORT = 7777
"""The port of the rendezvous on the first host, as SageMaker's PyTorch containers have it."""


class Layout(Protocol):
    """Where the instance's files are: as its processes see them, and as the agent sees the same folder."""

    @property
    def opt_ml(self) -> Path:
        """`/opt/ml` inside the sandbox."""

    @property
    def host_opt_ml(self) -> Path:
        """The same folder on the node, read while planning (entry points, drivers)."""


class Environment(Protocol):
    """The training environment and what the container contract gives to every process of this instance."""

    @property
    def python(self) -> Path:
        """The interpreter, as seen inside the sandbox."""

    @property
    def path(self) -> Sequence[Path]:
        """Folders for PATH, first match wins: the job's venv, the environment, then the system."""

    @property
    def variables(self) -> Mapping[str, str]:
        """SM_*, TRAINING_JOB_*, the request's Environment, credentials' addresses … Plans start from a copy."""

    @property
    def arguments(self) -> Sequence[str]:
        """The user's hyperparameters as argv words (`--key value`, sorted)."""

    @property
    def cpus(self) -> int:
        """Cores of this machine that jobs may use."""


@dataclass(frozen=True)
class LaunchEnvironment:
    """The plain `Environment`."""

    python: Path
    path: Sequence[Path]
    variables: Mapping[str, str]
    arguments: Sequence[str]
    cpus: int


@dataclass(frozen=True)
class LaunchLayout:
    """The plain `Layout`."""

    host_opt_ml: Path
    opt_ml: Path = Path("/opt/ml")


@dataclass(frozen=True)
class Command:
    """One process that the supervisor starts. The instance has ended when all have; the first failure ends the rest."""

    argv: list[str]
    env: dict[str, str]
    """The whole environment of the process, PATH included."""
    cwd: str
    stream: str
    """Name of the host (algo-N) whose log stream shows the lines."""
    tag: str | None = None
    """Where set, lines are logged as `<tag><stdout>:line` and `<tag><stderr>:line`, as mpirun's --tag-output does."""
    rank: int | None = None
    """Rank in the whole job; null for a launcher that starts ranks itself and for a script without ranks."""
    local_rank: int | None = None


@dataclass(frozen=True)
class LaunchPlan:
    """What this host starts. `launcher` names the way in a word for logs and describe."""

    launcher: str
    commands: list[Command]
    notices: list[str] = field(default_factory=list)
    """Sentences for the user: options that are ignored, caps, stand-ins. The agent logs and reports each."""
    processes_per_host: int = 1


class LaunchRefused(Exception):
    """The job cannot be started as asked; `message` says why and what to change."""

    def __init__(self, cause: FailureCause, message: str) -> None:
        super().__init__(message)
        self.cause = cause
        self.message = message
