"""One stack for all acceptance tests of a run, shared by the workers of pytest-xdist; the last to leave ends it."""

from __future__ import annotations

import fcntl
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.databases import ON_POSTGRESQL
from tests.support.fixtures import job_name
from tests.support.stack import REPOSITORY, Stack, run
from tests.support.wait import wait_until

__all__ = ["job_name"]

HERE = Path(__file__).parent
SCRIPTS = HERE / "scripts"
CLIENTS = HERE / "clients"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Stack]:
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent
    home, users, lock = shared / "the home", shared / "stack-users", shared / "stack-lock"
    with locked(lock):
        count = int(users.read_text()) if users.exists() else 0
        stack = Stack.at(home) if count else Stack.up(home, "--nodes", "8")
        users.write_text(str(count + 1))
    yield stack
    if not count and ON_POSTGRESQL:  # the server of its database ends with this process
        wait_until(lambda: users.read_text() == "1", timeout=900, what="the other workers are done with the stack")
    with locked(lock):
        left = int(users.read_text()) - 1
        users.write_text(str(left))
        if left == 0:
            stack.down()


@pytest.fixture(scope="session")
def bucket(stack: Stack) -> str:
    name = f"acceptance-{uuid.uuid4().hex[:12]}"
    stack.client("s3").create_bucket(Bucket=name)
    return name


@pytest.fixture(scope="session")
def client_python() -> Callable[[str], Path]:
    """The Python of a client environment (requirements/clients/<name>.txt), made at its first use."""

    def python_of(name: str) -> Path:
        printed = run("python3", REPOSITORY / "scripts" / "client_env.py", name, timeout=900).stdout
        return Path(printed.strip().splitlines()[-1])

    return python_of


def result_of(output: str) -> dict[str, Any]:
    """The object that a client script printed as its RESULT."""
    lines = [line for line in output.splitlines() if line.startswith("RESULT ")]
    assert len(lines) == 1, f"no RESULT line in\n{output[-6000:]}"
    result: dict[str, Any] = json.loads(lines[0].removeprefix("RESULT "))
    return result
