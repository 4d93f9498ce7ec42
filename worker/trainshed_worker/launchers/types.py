"""What a launch plan is made from and what it consists of; nothing here does any work.

Invariant: a plan is complete. The supervisor starts each command with exactly its `argv`, `env` and `cwd`; it adds and
looks up nothing, so what a plan says in a test is what runs in a sandbox.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Protocol

from trainshed_worker.protocol import FailureCause


class Layout(Protocol):
    """Where the instance's files are; `contract.InstanceLayout` is one."""

    @property
    def ml(self) -> Path:
        """/opt/ml as the node sees it; read while planning (entry points, drivers)."""

    @property
    def input_data(self) -> Path:
        """/opt/ml/input/data as the node sees it."""

    def inside(self, host_path: Path) -> PurePosixPath:
        """The name of a path below `ml` as the instance's processes see it."""


class Environment(Protocol):
    """The training environment and what the container contract gives to every process of this instance."""

    @property
    def python(self) -> PurePosixPath:
        """The interpreter, as seen inside the sandbox."""

    @property
    def variables(self) -> Mapping[str, str]:
        """The contract's variables (`contract.environment.process_environment`), PATH among them."""

    @property
    def cpus(self) -> int:
        """Cores of this machine that jobs may use."""

    @property
    def mounts(self) -> Mapping[PurePosixPath, Path]:
        """Folders of PATH that lie elsewhere on the node: as the processes see them → as the node sees them."""


@dataclass(frozen=True)
class LaunchEnvironment:
    """The plain `Environment`."""

    python: PurePosixPath
    variables: Mapping[str, str]
    cpus: int
    mounts: Mapping[PurePosixPath, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class Command:
    """One process that the supervisor starts. The instance has ended when all have; the first failure ends the rest."""

    argv: list[str]
    env: dict[str, str]
    """The whole environment of the process, PATH included."""
    cwd: str
    stream: str
    """Name of the host (algo-N) whose log stream shows the lines."""
    prefix: str = ""
    """Put before each line, `[1,<rank>]<stdout>:` for ranks, as mpirun's --tag-output does."""
    rank: int | None = None
    """Rank in the whole job; null for a launcher that starts ranks itself and for a script without ranks."""
    local_rank: int | None = None
    fresh: str = "its launcher starts a process of its own"
    """Why it may not go on in a fork of a preloaded parent; empty where it may."""


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
