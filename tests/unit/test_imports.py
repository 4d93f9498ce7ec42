"""Imports go one way: service → the worker's protocol and the runtime's planner, which needs no torch; worker → nothing
of the service; runtime → torch alone.

Read from the source, so that an import inside a function counts as well.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {
    "service": (ROOT / "service", ROOT / "migrations"),
    "worker": (ROOT / "worker",),
    "runtime": (ROOT / "runtime",),
}
OURS = ("trainshed_service", "trainshed_migrations", "trainshed_worker", "trainshed_runtime", "smdistributed")
SHARED = ("trainshed_worker.protocol", "trainshed_runtime.planner", "trainshed_runtime.degrees")
# `trainshed doctor` tries on this machine what the sandbox would do, and looks at what a node keeps; it runs no job.
DOCTOR = "service/trainshed_service/cli/doctor.py"
EXCEPTIONS = {
    (DOCTOR, "trainshed_worker.sandbox.probe"),
    (DOCTOR, "trainshed_worker.agent.disk"),
    (DOCTOR, "trainshed_worker.data.default_limit"),
}
SERVICE_ONLY = {"fastapi", "starlette", "uvicorn", "sqlalchemy", "alembic", "psycopg", "aiohttp", "pydantic_settings"}


def imports(room: str) -> Iterator[tuple[str, str]]:
    """(file, module) for each import of the room; `from a import b` gives `a.b`, since b may be a module."""
    for source in SOURCES[room]:
        for path in sorted(source.rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            for node in ast.walk(ast.parse(path.read_text(), filename=name)):
                if isinstance(node, ast.Import):
                    yield from ((name, alias.name) for alias in node.names)
                elif isinstance(node, ast.ImportFrom):
                    assert node.level == 0, f"{name}:{node.lineno} imports relatively"
                    yield from ((name, f"{node.module}.{alias.name}") for alias in node.names)


def is_of(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def test_the_service_knows_of_the_others_only_the_protocol_and_the_planner() -> None:
    outside = ("trainshed_worker", "trainshed_runtime", "smdistributed", "torch")
    used = {(file, module) for file, module in imports("service") if is_of(module, *outside)}
    assert any(is_of(module, "trainshed_worker.protocol") for _, module in used)
    strange = {(file, module) for file, module in used if not is_of(module, *SHARED)}
    allowed = {pair for pair in strange if any(pair[0] == file and is_of(pair[1], name) for file, name in EXCEPTIONS)}
    assert strange - allowed == set()
    needed = {(file, name) for file, name in EXCEPTIONS for pair in allowed if pair[0] == file and is_of(pair[1], name)}
    assert needed == EXCEPTIONS, "an exception that nobody needs"


def test_the_worker_knows_nothing_of_the_service() -> None:
    used = list(imports("worker"))
    others = [package for package in OURS if package != "trainshed_worker"]
    assert [pair for pair in used if is_of(pair[1], *others, "torch")] == []
    assert [pair for pair in used if is_of(pair[1], *SERVICE_ONLY)] == []


def test_the_runtime_needs_torch_and_the_standard_library_alone() -> None:
    own = ("trainshed_runtime", "smdistributed", "torch")
    used = [pair for pair in imports("runtime") if pair[1].split(".")[0] not in sys.stdlib_module_names]
    assert any(is_of(module, "torch") for _, module in used)
    assert [pair for pair in used if not is_of(pair[1], *own)] == []


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("trainshed_service.api", "torch numpy alembic trainshed_worker.agent trainshed_worker.sandbox"),
        ("trainshed_service.s3.__main__", "torch numpy alembic fastapi trainshed_worker.agent"),
        ("trainshed_service.logs.__main__", "torch numpy alembic trainshed_worker.agent"),
        ("trainshed_worker.agent.__main__", "torch numpy sqlalchemy fastapi trainshed_service"),
        ("trainshed_worker.sandbox.supervisor", "torch numpy boto3 pydantic httpx trainshed_service"),
    ],
)
def test_a_process_loads_nothing_that_is_not_its_own(module: str, absent: str) -> None:
    code = f"import sys, {module}; print([name for name in {absent.split()!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
