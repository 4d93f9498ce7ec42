"""How pip reaches its index from inside the sandbox: the node's own pip configuration, then the job's PIP_* variables.

Invariant: only settings that say where packages come from are passed on; files they name are shown read-only to pip,
never to the job.
"""

import ast
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from trainshed_worker.environments.base import BaseEnvironment

TIMEOUT = 60.0
_PASSED = frozenset(
    {
        "cert",
        "client-cert",
        "constraint",
        "default-timeout",
        "extra-index-url",
        "find-links",
        "index-url",
        "no-index",
        "only-binary",
        "prefer-binary",
        "retries",
        "timeout",
        "trusted-host",
    }
)
_LINE = re.compile(r"^(?::env:|global|install|site|user)\.\.?([\w-]+)=(.*)$")


@dataclass(frozen=True)
class PipSettings:
    """Variables for pip, and host paths that they name."""

    variables: dict[str, str]
    paths: tuple[Path, ...]
    index_hosts: tuple[str, ...]
    """`host:port` of the indexes, to be let through by the way out."""


@lru_cache(maxsize=8)
def _node_settings(python: Path) -> tuple[tuple[str, str], ...]:
    try:
        answer = subprocess.run(
            [str(python), "-m", "pip", "config", "list"], capture_output=True, text=True, timeout=TIMEOUT, check=True
        )
    except (subprocess.SubprocessError, OSError):
        return ()
    found: dict[str, str] = {}
    lines = answer.stdout.splitlines()
    for line in sorted(lines, key=lambda line: line.startswith(":env:")):  # variables win over files
        match = _LINE.match(line)
        if match and match.group(1) in _PASSED:
            found[match.group(1)] = str(ast.literal_eval(match.group(2)))
    return tuple(sorted(found.items()))


@lru_cache(maxsize=8)
def _default_hosts(python: Path) -> tuple[str, ...]:
    """Where pip looks when nothing is configured: its own index, and the host of that index's files."""
    script = "from pip._internal.models.index import PyPI; print(PyPI.simple_url, PyPI.file_storage_domain)"
    try:
        answer = subprocess.run(
            [str(python), "-c", script], capture_output=True, text=True, timeout=TIMEOUT, check=True
        )
        index, files = answer.stdout.split()
    except (subprocess.SubprocessError, OSError, ValueError):
        return ()
    return tuple(_hosts(f"{index} https://{files}"))


def _local_paths(value: str) -> list[Path]:
    found = []
    for word in value.split():
        path = word.removeprefix("file://") if word.startswith("file://") else word
        if path.startswith("/") and Path(path).exists():
            found.append(Path(path))
    return found


def _shown(key: str, value: str) -> list[Path]:
    """What pip must see of a local setting. The pages of a local index name files beside the index's own folder."""
    paths = _local_paths(value)
    if key not in ("index-url", "extra-index-url"):
        return paths
    return [path.parent if len(path.parts) > 2 else path for path in paths]


def _hosts(value: str) -> list[str]:
    found = []
    for word in value.split():
        parts = urlsplit(word)
        if parts.scheme in ("http", "https") and parts.hostname:
            found.append(f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}")
    return found


def pip_settings(base: BaseEnvironment, job_environment: Mapping[str, str]) -> PipSettings:
    """Settings of the node with the job's own PIP_* on top. Blocking the first time."""
    node = dict(_node_settings(base.bin / "python3"))
    variables = {f"PIP_{key.upper().replace('-', '_')}": value for key, value in node.items()}
    paths = [path for key, value in node.items() for path in _shown(key, value)]
    hosts = [host for value in node.values() for host in _hosts(value)]
    if "index-url" not in node:  # a machine may reach pip's own index by a mirror in its private network
        hosts += _default_hosts(base.bin / "python3")
    for name, value in job_environment.items():
        if name.startswith("PIP_"):
            variables[name] = value
    return PipSettings(variables, tuple(dict.fromkeys(paths)), tuple(dict.fromkeys(hosts)))
