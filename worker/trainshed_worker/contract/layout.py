"""Where the files of one instance lie, on the node and as its processes see them.

Invariant: everything an assignment ever writes is below `root`, so deleting `root` leaves nothing of it behind. Paths
below `ml` are written by the user's processes; the agent must open them only through `trainshed_worker.data.tree`,
which follows no symbolic link.
"""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ML = PurePosixPath("/opt/ml")
"""Where `InstanceLayout.ml` is mounted for the processes of the instance."""

INPUT_DATA = ML / "input" / "data"
"""Where `InstanceLayout.input_data` is."""
WARM_POOL_CACHE = ML / "sagemaker" / "warmpoolcache"
"""What stays from job to job of one warm pool, on one node."""
LOWER = "lower"
"""See trainshed_worker.sandbox.spec.Bind.layered."""
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
    def input(self) -> Path:
        """Layers of the channels' directory: `lower` is what the agent brings, the others what the job makes of it."""
        return self.root / "input"

    @property
    def input_data(self) -> Path:
        """Mounted at /opt/ml/input/data. Outside `ml`, since its files may be links into the node's cache, which no
        process of a job may reach but through the overlay that the sandbox puts above them."""
        return self.input / LOWER

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
        """Host directory of the checkpoints; outside `ml` where LocalPath is outside /opt/ml or in the input."""
        if not self.checkpoints_outside_ml and self.checkpoint_path != ML:
            return self.ml / self.checkpoint_path.relative_to(ML)
        return self.root / "checkpoints"

    @property
    def checkpoints_outside_ml(self) -> bool:
        return not self.checkpoint_path.is_relative_to(ML) or self.checkpoint_path.is_relative_to(INPUT_DATA)

    def inside(self, host_path: Path) -> PurePosixPath:
        """The name of a host path below `ml` or `input_data` as the processes see it. ValueError for any other path."""
        if host_path.is_relative_to(self.input_data):
            return INPUT_DATA / host_path.relative_to(self.input_data)
        return ML / host_path.relative_to(self.ml)

    def host(self, inside: PurePosixPath) -> Path:
        """The host path of a name below /opt/ml. ValueError for any other name."""
        if inside.is_relative_to(INPUT_DATA):
            return self.input_data / inside.relative_to(INPUT_DATA)
        return self.ml / inside.relative_to(ML)

    def create(self) -> None:
        """Make all directories that exist before a process starts. May be called again after a crash."""
        for directory in (
            self.state,
            self.instance,
            self.code,
            self.config,
            self.input_data,
            self.ml / INPUT_DATA.relative_to(ML),
            self.ml / WARM_POOL_CACHE.relative_to(ML),
            self.model,
            self.output_data,
            self.checkpoints,
        ):
            directory.mkdir(parents=True, exist_ok=True)
