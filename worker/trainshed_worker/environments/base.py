"""An installed Python environment that jobs build on, as its own interpreter describes it.

Invariant: nothing is ever written into a base; its `fingerprint` changes whenever its interpreter or any installed
distribution does, so what was built on an older state is not used on a newer one.
"""

import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

TIMEOUT = 60.0
_DESCRIBE = r"""
import json, os, site, sys
from importlib import metadata
found = {}
for item in metadata.distributions():
    name = item.metadata["Name"]
    if name and name not in found:
        found[name] = item.version
print(json.dumps({
    "version": list(sys.version_info[:3]),
    "executable": os.path.realpath(getattr(sys, "_base_executable", sys.executable)),
    "site": [path for path in site.getsitepackages() if os.path.isdir(path)],
    "distributions": found,
}))
"""


class BaseError(Exception):
    """The environment is not usable; the text says why."""


@dataclass(frozen=True)
class BaseEnvironment:
    """`prefix` is its sys.prefix; `executable` the real interpreter below its base installation."""

    prefix: Path
    executable: Path
    version: tuple[int, int, int]
    site: tuple[Path, ...]
    distributions: tuple[tuple[str, str], ...]

    @property
    def bin(self) -> Path:
        return self.prefix / "bin"

    @property
    def python_name(self) -> str:
        return f"python{self.version[0]}.{self.version[1]}"

    @property
    def fingerprint(self) -> str:
        text = json.dumps([str(self.prefix), str(self.executable), self.version, self.distributions])
        return hashlib.sha256(text.encode()).hexdigest()


def describe(prefix: Path) -> BaseEnvironment:
    """The environment at `prefix`. Blocking (starts its interpreter once per state of its folders). BaseError."""
    python = prefix / "bin" / "python3"
    if not python.exists():
        raise BaseError(f"{prefix} holds no bin/python3; name the prefix of a Python environment")
    return _describe(prefix, _state(prefix))


def _state(prefix: Path) -> tuple[int, ...]:
    """Changes whenever something is installed or removed: the site-packages folders' times."""
    return tuple(path.stat().st_mtime_ns for path in sorted(prefix.glob("lib/python3*/site-packages")))


@lru_cache(maxsize=32)
def _describe(prefix: Path, _: tuple[int, ...]) -> BaseEnvironment:
    python = prefix / "bin" / "python3"
    try:
        answer = subprocess.run(
            [str(python), "-I", "-c", _DESCRIBE], capture_output=True, text=True, timeout=TIMEOUT, check=True
        )
    except subprocess.CalledProcessError as error:
        raise BaseError(f"{python} does not start: {error.stderr.strip()[-500:]}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BaseError(f"{python} does not start: {error}") from error
    raw = json.loads(answer.stdout)
    version = raw["version"]
    return BaseEnvironment(
        prefix=prefix,
        executable=Path(raw["executable"]),
        version=(version[0], version[1], version[2]),
        site=tuple(Path(path) for path in raw["site"]),
        distributions=tuple(sorted(raw["distributions"].items())),
    )


def own_prefix() -> Path:
    """The agent's own environment, the default for jobs."""
    return Path(sys.prefix)
