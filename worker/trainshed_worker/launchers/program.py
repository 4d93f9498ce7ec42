"""From `sagemaker_program` to the words of a command line, by what kind of file it is."""

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from trainshed_worker.launchers.types import Environment, LaunchRefused, Layout
from trainshed_worker.protocol import FailureCause

MAX_LISTED = 20


@dataclass(frozen=True)
class Program:
    """`interpreter` starts it (empty for an executable), `target` is the script or `-m module`."""

    interpreter: list[str]
    target: list[str]
    is_python: bool

    @property
    def argv(self) -> list[str]:
        return [*self.interpreter, *self.target]


def find_program(name: str, layout: Layout, environment: Environment) -> Program:
    """Finds the entry point in the code folder.

    `.py` runs with the environment's Python, as a module where the archive holds a setup.py; a file with a `#!` line
    runs as that line says; another `.sh` runs with /bin/sh. Refuses a missing file (listing what the archive holds), a
    path outside of the archive, and a file that is none of these.
    """
    code = layout.ml / "code"
    relative = PurePosixPath(name)
    if relative.is_absolute() or ".." in relative.parts:
        raise LaunchRefused(
            FailureCause.USER_INPUT,
            f"The entry point {name!r} must be a path inside the source archive, such as train.py or src/train.py.",
        )
    file = code / relative
    if not file.resolve().is_relative_to(code.resolve()):
        raise LaunchRefused(
            FailureCause.USER_INPUT,
            f"The entry point {name!r} is a link to a place that is not inside the source archive.",
        )
    if not file.is_file():
        raise LaunchRefused(FailureCause.USER_INPUT, _missing(name, code))
    seen = str(layout.inside(file))
    if relative.suffix == ".py":
        if (code / "setup.py").is_file() and relative.name != "setup.py":
            module = ".".join(relative.with_suffix("").parts)
            return Program([str(environment.python)], ["-m", module], is_python=True)
        return Program([str(environment.python)], [seen], is_python=True)
    shebang = _shebang(file)
    if shebang:
        return Program(shebang, [seen], is_python=False)
    if relative.suffix == ".sh":
        return Program(["/bin/sh"], [seen], is_python=False)
    if os.access(file, os.X_OK):
        return Program([], [seen], is_python=False)
    raise LaunchRefused(
        FailureCause.USER_INPUT,
        f"The entry point {name!r} is not a .py or .sh file, has no '#!' line and is not executable, so there is no "
        "way to run it.",
    )


def _shebang(file: Path) -> list[str]:
    """The words of the `#!` line as the kernel splits it: an interpreter and at most one argument."""
    with file.open("rb") as stream:
        line = stream.readline(512)
    if not line.startswith(b"#!"):
        return []
    return line[2:].decode("utf-8", "replace").strip().split(None, 1)


def _missing(name: str, code: Path) -> str:
    entries = sorted(entry.name + ("/" if entry.is_dir() else "") for entry in code.iterdir()) if code.is_dir() else []
    if not entries:
        return f"The entry point {name!r} was not found: the source archive is empty."
    listed = ", ".join(entries[:MAX_LISTED])
    more = f" and {len(entries) - MAX_LISTED} more" if len(entries) > MAX_LISTED else ""
    return f"The entry point {name!r} was not found in the source archive. Its top level holds: {listed}{more}."
