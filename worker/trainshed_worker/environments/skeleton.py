"""A virtual environment made of links only: the base's interpreter, a `.pth` file that shows what is below, and the
base's console scripts rewritten for this interpreter. Takes milliseconds and copies nothing.

Invariant: every `python`, `pip` and console script (`torchrun`) that a process finds on PATH is of one interpreter that
sees, in this order, what the process itself installs, the job's requirements, the base.
"""

import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath

from trainshed_worker.environments.base import BaseEnvironment

MAX_SCRIPT = 64 << 10
_SKIPPED = ("python", "activate", "Activate", "pip", "trainshed")


def site_packages(directory: Path, base: BaseEnvironment) -> Path:
    """The environment's own site-packages."""
    return directory / "lib" / base.python_name / "site-packages"


def make_skeleton(
    directory: Path,
    inside: PurePosixPath,
    base: BaseEnvironment,
    below: Sequence[Path | PurePosixPath],
    scripts: Iterable[Path],
) -> None:
    """Fill `directory`, which appears at `inside` for its processes. May be called again.

    `below`: site directories to see, first wins, as the processes see them; `scripts`: host folders whose console
    scripts are to be had, first wins.
    """
    binaries = directory / "bin"
    packages = site_packages(directory, base)
    binaries.mkdir(parents=True, exist_ok=True)
    packages.mkdir(parents=True, exist_ok=True)
    (directory / "pyvenv.cfg").write_text(
        f"home = {base.executable.parent}\n"
        "include-system-site-packages = false\n"
        f"version = {'.'.join(map(str, base.version))}\n"
        f"executable = {base.executable}\n"
    )
    for name in ("python", "python3", base.python_name):
        _link(binaries / name, base.executable)
    lines = [f"import site; site.addsitedir({str(path)!r})" for path in below]
    (packages / "_below.pth").write_text("\n".join(lines) + "\n")
    for name in ("pip", "pip3"):
        _script(binaries / name, f'#!/bin/sh\nexec {inside}/bin/python3 -m pip "$@"\n')
    adopted: dict[str, bytes] = {}
    for folder in scripts:
        if folder.is_dir():
            for name, content in _scripts(folder, folder.stat().st_mtime_ns, str(inside)):
                adopted.setdefault(name, content)
    for name, content in adopted.items():
        _write(str(binaries / name), content)


def _link(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def _script(path: Path, content: str) -> None:
    path.write_text(content)
    path.chmod(0o755)


def _write(path: str, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o755)
    try:
        os.write(descriptor, content)
        os.fchmod(descriptor, 0o755)  # whatever the agent's umask is
    finally:
        os.close(descriptor)


@lru_cache(maxsize=64)
def _scripts(folder: Path, changed_at: int, inside: str) -> tuple[tuple[str, bytes], ...]:
    """The Python scripts in `folder` with their first lines rewritten. Read once per state of the folder: there are a
    hundred of them in a common environment, and a job waits for this."""
    found = []
    for entry in os.scandir(folder):
        if entry.name.startswith(_SKIPPED):
            continue
        if not entry.is_file() or entry.stat().st_size > MAX_SCRIPT:
            continue
        content = Path(entry.path).read_bytes()
        first, _, rest = content.partition(b"\n")
        if not first.startswith(b"#!") or b"python" not in first:
            continue
        found.append((entry.name, f"#!{inside}/bin/python3\n".encode() + rest))
    return tuple(found)
