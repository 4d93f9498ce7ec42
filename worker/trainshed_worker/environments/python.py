"""What a launcher and the sandbox need to know of the Python environment of one job."""

from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

INSIDE = PurePosixPath("/opt/python")
"""Where the job's own environment is mounted: `bin/python3`, `bin/pip`, `bin/torchrun` … all of one interpreter."""


@dataclass(frozen=True)
class PythonEnvironment:
    """One job's Python. All paths are as the job's processes see them, unless they say `host`."""

    name: str
    """In words, for the log: which row of the image table it is, e.g. `default (python 3.11.2)`."""
    bin: PurePosixPath = INSIDE / "bin"
    host_directory: Path | None = None
    """Host path of the job's own environment, to be mounted writable at INSIDE."""
    readable: tuple[Path, ...] = field(default=())
    """Host paths that must be mounted read-only at the same path: base environment, requirements, runtime sources."""

    @property
    def python(self) -> PurePosixPath:
        return self.bin / "python3"

    @property
    def search_path(self) -> str:
        """Value of PATH."""
        return f"{self.bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
