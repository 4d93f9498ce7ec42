"""The cluster in containers, as `make cluster` starts it: build, a job on two workers, a warm one, a kill, and the end.

A project of its own, on ports of its own, beside whatever else runs on the machine. Where no container engine answers,
one is started; where that or the base images cannot be had, it is said at the end of the run, and is a failure where
the cluster was asked for by name (TRAINSHED_REQUIRE_ENGINE=1, as `make test-cluster` sets it).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.engine import NoEngine, container_engine
from tests.support.jobs import job_request, log_lines, run_script, upload_source, wait_for_end, wait_for_line
from tests.support.ports import free_port
from tests.support.stack import REPOSITORY, Stack, plain_environment, run
from tests.support.wait import wait_until

pytestmark = [pytest.mark.docker, pytest.mark.needs("docker"), pytest.mark.timeout(3600)]

SCRIPTS = REPOSITORY / "scripts"
PROJECT = f"trainshed-test-{os.getpid()}"
LABEL = f"label=com.docker.compose.project={PROJECT}"
HOSTS = """
import json, os, socket
own = socket.gethostbyname(os.environ["SM_CURRENT_HOST"])
print("I am", os.environ["SM_CURRENT_HOST"], "at", own, "of", len(json.loads(os.environ["SM_HOSTS"])))
"""
PATIENT = """
import threading
print("waiting", flush=True)
threading.Event().wait()
"""


def docker(*words: str) -> list[str]:
    return run("docker", *words, timeout=120).stdout.split()


def container(service: str) -> str:
    """The first container of a service."""
    return docker("ps", "--quiet", "--filter", LABEL, "--filter", f"label=com.docker.compose.service={service}")[0]


def left() -> list[str]:
    """What the engine still has of the project."""
    found = docker("ps", "--all", "--quiet", "--filter", LABEL)
    for kind in ("volume", "network"):
        found += docker(kind, "ls", "--quiet", "--filter", LABEL)
    return found


@pytest.fixture(scope="module")
def engine() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="engine-") as folder:
        try:
            with container_engine(Path(folder)) as variables:
                for name, value in variables.items():
                    patch.setenv(name, value)
                yield
        except NoEngine as error:
            leave_untested(str(error))


def leave_untested(why: str) -> None:
    said = f"THE CLUSTER IN CONTAINERS WAS NOT TESTED: {why}"
    if os.environ.get("TRAINSHED_REQUIRE_ENGINE") == "1":
        pytest.fail(said, pytrace=False)
    pytest.skip(said)


@pytest.fixture(scope="module")
def stack(engine: None) -> Iterator[Stack]:
    images = run(sys.executable, SCRIPTS / "base_images.py", timeout=1800, check=False)
    if images.returncode != 0:
        leave_untested(images.stderr)
    ports = {"TRAINSHED_PORT": str(free_port()), "TRAINSHED_GATEWAY_PORT": str(free_port())}
    environment = plain_environment() | ports
    cluster = [sys.executable, SCRIPTS / "cluster.py"]
    folder = REPOSITORY / ".trainshed" / PROJECT
    try:
        run(*cluster, "up", "--no-demo", "--project", PROJECT, env=environment, timeout=3000)
        script = '. "$0" && exec "$1" -c "import json, os; print(json.dumps(dict(os.environ)))"'
        lines = run("bash", "-c", script, folder / "env.sh", sys.executable, env=environment).stdout
        yield Stack(Path("/var/lib/trainshed"), json.loads(lines))
    finally:
        run(*cluster, "down", "--project", PROJECT, env=environment, timeout=300)
    assert left() == []
    assert not folder.exists()


@pytest.fixture
def bucket(stack: Stack) -> str:
    name = f"cluster-{uuid.uuid4().hex[:10]}"
    stack.client("s3").create_bucket(Bucket=name)
    return name


def nodes(stack: Stack) -> dict[str, str]:
    """Node → state."""
    answer = subprocess.run(
        ["docker", "exec", container("service"), "trainshed", "nodes"], capture_output=True, text=True, check=True
    )
    rows = [line.split() for line in answer.stdout.splitlines()[1:]]
    return {row[0]: row[1] for row in rows if row}


def test_two_workers_are_two_instances_and_the_next_job_finds_them_warm(stack: Stack, bucket: str):
    source = upload_source(stack, bucket, {"train.py": HOSTS})
    names = [f"cluster-{uuid.uuid4().hex[:10]}" for _ in range(2)]
    for name in names:
        request = job_request(stack, bucket, name, source=source, program="train.py", count=2)
        request["ResourceConfig"]["KeepAlivePeriodInSeconds"] = 600
        stack.client("sagemaker").create_training_job(**request)
        described = wait_for_end(stack, name, timeout=300)
        assert described["TrainingJobStatus"] == "Completed", described.get("FailureReason")
        said = [line.split() for lines in log_lines(stack, name).values() for line in lines if "I am" in line]
        assert {words[2] for words in said} == {"algo-1", "algo-2"}
        assert len({words[4] for words in said}) == 2, f"two containers have two addresses: {said}"
    first = stack.client("sagemaker").describe_training_job(TrainingJobName=names[0])
    assert first["WarmPoolStatus"]["Status"] == "Reused" and first["WarmPoolStatus"]["ReusedByJob"] == names[1]
    stack.client("sagemaker").update_training_job(
        TrainingJobName=names[1], ResourceConfig={"KeepAlivePeriodInSeconds": 0}
    )
    wait_until(lambda: set(nodes(stack).values()) == {"free"}, timeout=60, what="the pool has ended")


def test_a_worker_that_is_killed_comes_back_as_the_same_node(stack: Stack, bucket: str):
    before = nodes(stack)
    name = run_script(stack, bucket, f"cluster-{uuid.uuid4().hex[:10]}", {"wait.py": PATIENT}, "wait.py", count=2)
    wait_for_line(stack, name, "waiting")
    worker = container("worker")
    docker("kill", "--signal", "KILL", worker)
    docker("start", worker)  # an engine starts no container again that somebody killed by hand
    described = wait_for_end(stack, name, timeout=300)
    assert described["TrainingJobStatus"] == "Failed"
    assert described["FailureReason"], "the loss is told"
    wait_until(lambda: set(nodes(stack).values()) == {"free"}, timeout=120, what="both nodes are free again")
    assert nodes(stack).keys() == before.keys()
    name = run_script(stack, bucket, f"cluster-{uuid.uuid4().hex[:10]}", {"train.py": HOSTS}, "train.py", count=2)
    assert wait_for_end(stack, name, timeout=300)["TrainingJobStatus"] == "Completed"
