"""A PostgreSQL server of our own for tests: in a temporary folder, on a Unix socket alone, as an unprivileged user.

Import `postgres` (session: the server) and `database_url` (function: a migrated database of either kind) in a conftest.
Durability is off: no test of ours pulls the plug.
"""

from __future__ import annotations

import itertools
import os
import pwd
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.databases import ON_POSTGRESQL, database_server, make_database
from tests.support.tools import find_tool
from tests.support.wait import wait_until
from trainshed_service.store import migrate

_TEMPLATE = "migrated"


class PostgresServer:
    """Use as a context manager. `folder` is its own and empty."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data = folder / "data"
        self._names = (f"test{number}" for number in itertools.count(1))
        self._has_template = False
        self._process: subprocess.Popen[bytes] | None = None
        self._as_user: dict[str, Any] = {"cwd": folder, "stdin": subprocess.DEVNULL}
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            user = _unprivileged_user()
            os.chown(folder, user.pw_uid, user.pw_gid)
            self._as_user |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def __enter__(self) -> PostgresServer:
        options = ["--username=trainshed", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"]
        made = subprocess.run(
            [_program("initdb"), f"--pgdata={self._data}", *options], capture_output=True, text=True, **self._as_user
        )
        assert made.returncode == 0, made.stderr
        command = [_program("postgres"), "-D", self._data, "-k", self._folder, "-c", "listen_addresses="]
        for setting in ("fsync=off", "full_page_writes=off", "synchronous_commit=off", "max_connections=200"):
            command += ["-c", setting]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **self._as_user)
        wait_until(self._answers, timeout=60, what="PostgreSQL answers")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)  # at once: nothing of it is kept
        self._process.wait(60)

    def new_database(self, *, migrated: bool = True, encoding: str = "UTF8") -> str:
        """The SQLAlchemy URL of a database that nobody else uses."""
        if encoding != "UTF8":
            name = next(self._names)
            self._execute(f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0")
            return self._url(name)
        if migrated and not self._has_template:
            self._execute(f"CREATE DATABASE {_TEMPLATE}")
            migrate(self._url(_TEMPLATE))
            self._has_template = True
        name = next(self._names)
        self._execute(f"CREATE DATABASE {name}" + (f" TEMPLATE {_TEMPLATE}" if migrated else ""))
        return self._url(name)

    def _url(self, name: str) -> str:
        return f"postgresql+psycopg://trainshed@/{name}?host={self._folder}"

    def _execute(self, statement: str) -> None:
        with self._connect() as connection:
            connection.execute(statement.encode())

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(host=str(self._folder), user="trainshed", dbname="postgres", autocommit=True)

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"PostgreSQL ended: {(self._folder / 'log').read_text()}")
        try:
            self._connect().close()
        except psycopg.OperationalError:
            return False
        return True


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    if ON_POSTGRESQL:
        yield database_server()
        return
    with tempfile.TemporaryDirectory(prefix="pg-") as folder, PostgresServer(Path(folder)) as server:
        yield server


_KINDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgres"))]


@pytest.fixture(params=_KINDS[1:] if ON_POSTGRESQL else _KINDS)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A migrated, empty database; the test runs on each kind, or on that which all tests are to run on."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'a file.sqlite3'}"
        make_database(url)
        yield url
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    yield server.new_database()


def _program(name: str) -> Path:
    found = find_tool(name)
    assert found is not None, f"no {name} beside postgres"
    return found


def _unprivileged_user() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")
