"""What the sandbox tests share: specs for small jobs, and reading back what an instance logged."""

import json
import sys
import sysconfig
from pathlib import Path

from trainshed_worker.sandbox import Bind, Command, InstanceHandle, SandboxSpec, python_binds

PATH = "/usr/bin:/bin"


def shell(script: str, **fields: object) -> Command:
    return Command(["/bin/sh", "-c", script], {"PATH": PATH}, **fields)  # type: ignore[arg-type]


def python(script: str, *arguments: str, env: dict[str, str] | None = None, **fields: object) -> Command:
    environment = {"PATH": PATH, "OMP_NUM_THREADS": "1", **(env or {})}
    return Command([sys.executable, "-c", script, *arguments], environment, **fields)  # type: ignore[arg-type]


def make_spec(directory: Path, *commands: Command, **fields: object) -> SandboxSpec:
    """An instance in `directory` that sees this Python environment."""
    values: dict[str, object] = {"hostname": "algo-1", "binds": environment_binds(), "grace": 5.0, **fields}
    return SandboxSpec(directory=str(directory), commands=list(commands), **values)  # type: ignore[arg-type]


def environment_binds() -> list[Bind]:
    return python_binds(Path(sysconfig.get_path("scripts")).parent)


def log_lines(handle: InstanceHandle) -> list[str]:
    """Texts in order; checks that the numbers have no gap."""
    records = [json.loads(line) for line in handle.spool_path.read_text(encoding="utf-8").splitlines()]
    assert [record[0] for record in records] == list(range(len(records)))
    return [record[3] for record in records]
