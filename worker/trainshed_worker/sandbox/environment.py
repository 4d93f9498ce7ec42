"""Which folders of the machine a Python environment needs inside a sandbox, read-only and at their own paths.

Invariant: only the environment's prefix, the base interpreter's prefix and the source roots that the caller names are
shown; never a parent of them.
"""

import os
from pathlib import Path

from trainshed_worker.sandbox.spec import Bind, SandboxError

SYSTEM_ROOTS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Shown in every sandbox."""


def python_binds(prefix: str | Path, sources: list[str | Path] | None = None) -> list[Bind]:
    """Binds for the environment whose `sys.prefix` is `prefix` (a venv or a base installation), and for source roots
    (an editable install's). Raises SandboxError where `prefix` holds no Python."""
    environment = Path(os.path.abspath(prefix))
    interpreter = environment / "bin" / "python"
    if not interpreter.exists():
        interpreter = environment / "bin" / "python3"
    if not interpreter.exists():
        raise SandboxError(f"{environment} holds no bin/python; name the prefix of a Python environment")
    paths = [environment, *_base_prefixes(environment, interpreter)]
    paths += [Path(os.path.abspath(source)) for source in sources or []]
    chosen: list[Path] = []
    for path in paths:
        if path not in chosen and not _is_system(path):
            chosen.append(path)
    return [Bind(source=str(path), target=str(path)) for path in chosen]


def _base_prefixes(environment: Path, interpreter: Path) -> list[Path]:
    """The base installation as pyvenv.cfg names it and as the interpreter's links lead to it (they may differ)."""
    found = [interpreter.resolve().parent.parent]
    link = interpreter
    while link.is_symlink():
        link = Path(os.path.normpath(link.parent / os.readlink(link)))
        found.append(link.parent.parent)
    config = environment / "pyvenv.cfg"
    if config.exists():
        for line in config.read_text().splitlines():
            key, _, value = line.partition("=")
            if key.strip() == "home":
                home = Path(value.strip())
                found += [home.parent, home.resolve().parent]
    return [path for path in found if path != environment]


def _is_system(path: Path) -> bool:
    return path == Path("/") or any(path == Path(root) or Path(root) in path.parents for root in SYSTEM_ROOTS)
