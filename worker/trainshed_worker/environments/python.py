"""What a launcher and the sandbox need to know of the Python environment of one job."""

from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from trainshed_worker.environments.base import BaseEnvironment

INSIDE = PurePosixPath("/opt/python")
"""Where the job's own environment is mounted: `bin/python3`, `bin/pip`, `bin/torchrun` … all of one interpreter."""


@dataclass(frozen=True)
class PythonEnvironment:
    """One job's Python."""

    name: str
    """In words, for the log, e.g. `default (Python 3.11.2)`."""
    base: BaseEnvironment
    """What it builds on."""
    prefix: Path
    """Base environment, to be shown read-only at the same path (`sandbox.python_binds`)."""
    host_directory: Path
    """The job's own layer, to be mounted writable at INSIDE."""
    files: Path
    """What INSIDE shows at first; another folder than the layer where that is to be mounted as an overlay."""
    sources: tuple[Path, ...] = field(default=())
    """Source roots to be shown read-only at the same path."""
    mounts: tuple[tuple[Path, Path], ...] = field(default=())
    """(host path, path inside) of further read-only layers: the job's requirements."""

    @property
    def layered(self) -> bool:
        """True where the layer is to be mounted as an overlay (`sandbox.Bind.layered`)."""
        return self.files != self.host_directory

    @property
    def python(self) -> PurePosixPath:
        return INSIDE / "bin" / "python3"

    @property
    def search_path(self) -> str:
        """Value of PATH."""
        return f"{INSIDE / 'bin'}:{self.prefix / 'bin'}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
