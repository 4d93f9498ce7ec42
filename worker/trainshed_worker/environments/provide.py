"""The Python environment of one job, ready to be mounted: base by image, requirements by hash, a layer of its own.

Invariant: what is shared between jobs (base, requirements) is read-only to them; what a job installs itself goes to its
own layer and is deleted with it.
"""

import importlib.util
import shutil
from dataclasses import dataclass
from pathlib import Path

from trainshed_worker.environments.base import BaseEnvironment, BaseError, describe
from trainshed_worker.environments.python import INSIDE, PythonEnvironment
from trainshed_worker.environments.skeleton import make_skeleton
from trainshed_worker.environments.skeletons import Skeletons
from trainshed_worker.environments.table import EnvironmentTable
from trainshed_worker.sandbox.layers import LOWER


@dataclass(frozen=True)
class Installed:
    """Requirements of a job as they are on disk: `directory` is mounted at `inside`."""

    directory: Path
    inside: Path


def runtime_source() -> Path | None:
    """The source root of trainshed_runtime where it is installed from a checkout; None where it is in site-packages."""
    spec = importlib.util.find_spec("trainshed_runtime")
    if spec is None or not spec.submodule_search_locations:
        return None
    root = Path(next(iter(spec.submodule_search_locations))).resolve().parent
    return None if root.name in ("site-packages", "dist-packages") else root


def base_for(table: EnvironmentTable, image: str | None) -> tuple[str, BaseEnvironment]:
    """Name and base of the environment that an image means. Blocking. BaseError."""
    row = table.choose(image)
    try:
        return row.name, describe(row.prefix)
    except BaseError as error:
        raise BaseError(f"environment {row.name!r} for image {image!r}: {error}") from error


def provide(
    name: str,
    base: BaseEnvironment,
    directory: Path,
    installed: Installed | None = None,
    plain: tuple[Skeletons, int] | None = None,
) -> PythonEnvironment:
    """Make the job's own layer in `directory` and say what has to be mounted. Blocking; may be called again.

    `plain`: where overlays can be mounted, the files of environments without requirements, and the slot."""
    below: list[Path] = []
    scripts: list[Path] = []
    mounts: list[tuple[Path, Path]] = []
    if installed is not None:
        below.append(installed.inside / "lib" / base.python_name / "site-packages")
        scripts.append(installed.directory / "bin")
        mounts.append((installed.directory, installed.inside))
    below.extend(base.site)
    scripts.append(base.bin)
    source = runtime_source()
    if source is not None:
        below.append(source)
    files = directory
    if plain is not None and installed is None:
        skeletons, slot = plain
        files = skeletons.show(slot, directory, base, below, scripts)
    else:
        if (directory / LOWER).is_symlink():  # it was thought to be one without requirements
            shutil.rmtree(directory)
        make_skeleton(directory, INSIDE, base, below, scripts)
    return PythonEnvironment(
        name=f"{name} (Python {'.'.join(map(str, base.version))})",
        base=base,
        prefix=base.prefix,
        host_directory=directory,
        files=files,
        sources=(source,) if source is not None else (),
        mounts=tuple(mounts),
    )
