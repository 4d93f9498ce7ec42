"""What docker-compose.yml puts into containers, as processes: store, PostgreSQL, service, and nodes that join it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.fixtures import job_name
from tests.support.jobs import log_lines, run_script, wait_for_end
from tests.support.ports import free_port
from tests.support.postgres import PostgresServer, postgres
from tests.support.stack import TRAINSHED, Stack, plain_environment, run
from tests.support.wait import patient, wait_until

__all__ = ["job_name", "postgres"]

TOKEN = "tse_given-by-whoever-runs-the-cluster"
SCRIPT = """
import json, os, socket
hosts = json.loads(os.environ["SM_HOSTS"])
print("I am", os.environ["SM_CURRENT_HOST"], "of", sorted(socket.gethostbyname(host) for host in hosts))
"""


@contextmanager
def process(folder: Path, *command: str | Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "output.txt").open("ab") as log:
        started = subprocess.Popen([str(word) for word in command], env=environment, stdout=log, stderr=log)
    try:
        yield started
    finally:
        started.send_signal(signal.SIGTERM)
        assert started.wait(patient(60)) in (0, -signal.SIGTERM), (folder / "output.txt").read_text()[-4000:]


@pytest.mark.needs("postgres")
def test_nodes_elsewhere_run_a_job_on_postgresql_and_a_store_elsewhere(
    tmp_path: Path, postgres: PostgresServer, job_name: str
):
    ports = {name: free_port() for name in ("store", "main", "gateway", "ingest")}
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    for name, value in {
        "database_url": postgres.new_database(migrated=False),
        "store_access_key": "TSGIVENKEY",
        "store_secret_key": "given-secret",
        "enrollment_token": TOKEN,
    }.items():
        (secrets / f"trainshed_{name}").write_text(value)
    environment = plain_environment() | {"TRAINSHED_SECRETS_DIR": str(secrets)}
    service = environment | {
        "TRAINSHED_HOST": "0.0.0.0",
        "TRAINSHED_PORT": str(ports["main"]),
        "TRAINSHED_GATEWAY_PORT": str(ports["gateway"]),
        "TRAINSHED_INGEST_PORT": str(ports["ingest"]),
        "TRAINSHED_STORE_ENDPOINT": f"http://127.0.0.1:{ports['store']}",
        "TRAINSHED_GATEWAY_URL": f"http://localhost:{ports['gateway']}",
    }
    home = tmp_path / "service home"
    with ExitStack() as running:
        store = tmp_path / "store"
        store.mkdir()
        command = [sys.executable, "-m", "trainshed_service.embedded.store_server", "--home", store]
        running.enter_context(process(store, *command, "--port", str(ports["store"]), environment=environment))
        run(TRAINSHED, "server", "--home", home, "--detach", env=service, timeout=120)
        running.callback(run, TRAINSHED, "down", "--home", home, env=plain_environment(), timeout=120)
        assert not (home / "trainshed.sqlite3").exists() and not (home / "store").exists()
        for number in range(2):
            node = tmp_path / f"node {number}"
            node.mkdir()
            command = [TRAINSHED, "node", "--home", node, "--server", f"http://localhost:{ports['main']}"]
            token = secrets / "trainshed_enrollment_token"
            running.enter_context(process(node, *command, "--token-file", token, environment=plain_environment()))
        stack = Stack.at(home)
        wait_until(lambda: stack.trainshed("nodes").stdout.count("free") == 2, timeout=60, what="both nodes are there")
        run_script(stack, stack.bucket, job_name, {"train.py": SCRIPT}, "train.py", count=2)
        described = wait_for_end(stack, job_name)
        assert described["TrainingJobStatus"] == "Completed", described.get("FailureReason")
        said = [line for lines in log_lines(stack, job_name).values() for line in lines]
        assert sum("I am algo-1 of" in line for line in said) == 1
        assert sum("I am algo-2 of" in line for line in said) == 1
        for folder in sorted(tmp_path.glob("node *")):
            done = run(
                sys.executable, "-m", "trainshed_worker.sweep", "--home", folder, env=dict(os.environ), timeout=60
            )
            assert done.returncode == 0


def test_a_database_that_does_not_answer_is_named_without_its_password(tmp_path: Path):
    url = f"postgresql+psycopg://trainshed:hunter2@127.0.0.1:{free_port()}/trainshed"
    done = run(
        *(TRAINSHED, "server", "--home", tmp_path / "home", "--detach"),
        env=plain_environment() | {"TRAINSHED_DATABASE_URL": url},
        check=False,
    )
    assert done.returncode == 1
    assert "postgresql+psycopg://trainshed:***@127.0.0.1" in done.stderr and "cannot be used" in done.stderr
    assert "hunter2" not in done.stderr + done.stdout
