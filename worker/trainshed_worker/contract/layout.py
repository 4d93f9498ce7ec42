"""Where the files of one instance lie, on the node and as its processes see them.

Invariant: everything an assignment ever writes is below `root`, so deleting `root` leaves nothing of it behind. Paths
below `ml` are written by the user's processes; the agent must open them only through `trainshed_worker.data.tree`,
which follows no symbolic link.
"""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ML = PurePosixPath("/opt/ml")
"""Where `InstanceLayout.ml` is mounted for the processes of the instance."""

DEFAULT_CHECKPOINTS = ML / "checkpoints"


@dataclass(frozen=True)
class InstanceLayout:
    """Host paths of one assignment; `inside` says the same place as the user's processes name it."""

    root: Path
    checkpoint_path: PurePosixPath = DEFAULT_CHECKPOINTS
    """CheckpointConfig.LocalPath, as the processes see it."""

    @property
    def agent_file(self) -> Path:
        return self.root / "agent.json"

    @property
    def state(self) -> Path:
        """Records of the agent that make each step resumable; never visible to the user's processes."""
        return self.root / "state"

    @property
    def instance(self) -> Path:
        """The sandbox's own directory: exit record, log spool, sockets."""
        return self.root / "instance"

    @property
    def spool(self) -> Path:
        return self.instance / "spool" / "lines.jsonl"

    @property
    def ml(self) -> Path:
        return self.root / "ml"

    @property
    def code(self) -> Path:
        return self.ml / "code"

    @property
    def config(self) -> Path:
        return self.ml / "input" / "config"

    @property
    def input_data(self) -> Path:
        return self.ml / "input" / "data"

    @property
    def model(self) -> Path:
        return self.ml / "model"

    @property
    def output(self) -> Path:
        return self.ml / "output"

    @property
    def output_data(self) -> Path:
        return self.ml / "output" / "data"

    @property
    def failure(self) -> Path:
        return self.ml / "output" / "failure"

    @property
    def environment(self) -> Path:
        """The job's own writable Python environment, mounted at `trainshed_worker.environments.INSIDE`."""
        return self.root / "environment"

    @property
    def checkpoints(self) -> Path:
        """Host directory of the checkpoints; outside `ml` where LocalPath is outside /opt/ml."""
        if self.checkpoint_path.is_relative_to(ML) and self.checkpoint_path != ML:
            return self.ml / self.checkpoint_path.relative_to(ML)
        return self.root / "checkpoints"

    @property
    def checkpoints_outside_ml(self) -> bool:
        return not self.checkpoint_path.is_relative_to(ML)

    def inside(self, host_path: Path) -> PurePosixPath:
        """The name of a host path below `ml` as the processes see it. ValueError for any other path."""
        return ML / host_path.relative_to(self.ml)

    def create(self) -> None:
        """Make all directories that exist before a process starts. May be called again after a crash."""
        for directory in (
            self.state,
            self.instance,
            self.code,
            self.config,
            self.input_data,
            self.model,
            self.output_data,
            self.checkpoints,
        ):
            directory.mkdir(parents=True, exist_ok=True)
