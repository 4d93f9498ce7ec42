"""Jobs that do not end as one would wish, and many at once: the slots are empty afterwards, and used again."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psutil
import pytest
from botocore.config import Config

from tests.chaos.conftest import GRACE_SECONDS
from tests.support.jobs import (
    job_request,
    log_lines,
    model_files,
    run_script,
    upload_source,
    wait_for_end,
    wait_for_line,
)
from tests.support.stack import Stack
from tests.support.wait import wait_until

pytestmark = pytest.mark.timeout(300)


def nodes_of(stack: Stack) -> list[dict[str, Any]]:
    answer = httpx.get(
        f"{stack.env['AWS_ENDPOINT_URL']}/v1/nodes",
        headers={"Authorization": f"Bearer {stack.env['TRAINSHED_TOKEN']}"},
        trust_env=False,
    )
    answer.raise_for_status()
    nodes: list[dict[str, Any]] = answer.json()["nodes"]
    return nodes


def wait_for_empty_slots(stack: Stack) -> None:
    """Every slot was proven empty by its agent: the service knows all nodes as free."""
    wait_until(lambda: {node["state"] for node in nodes_of(stack)} == {"free"}, timeout=30, what="all nodes are free")


def living(mark: str) -> list[str]:
    """Processes of this machine whose command line has the mark."""
    found = []
    for process in psutil.process_iter():
        try:
            words = " ".join(process.cmdline())
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if mark in words:
            found.append(words)
    return found


def test_a_daemon_that_a_script_leaves_ends_with_it(stack: Stack, job_name: str):
    mark = f"daemon-of-{job_name}"
    script = """import os, subprocess, sys, time
DAEMON = '''import os, signal, sys, time
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
print("the daemon is up", flush=True)
open("/tmp/up", "w").close()
time.sleep(3600)
'''
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, "-c", DAEMON, os.environ["MARK"]])
    os._exit(0)
while not os.path.exists("/tmp/up"):
    time.sleep(0.01)
print("main is done", flush=True)
"""
    run_script(stack, stack.bucket, job_name, {"t.py": script}, "t.py", Environment={"MARK": mark})
    described = wait_for_end(stack, job_name, timeout=60)
    assert described["TrainingJobStatus"] == "Completed", described.get("FailureReason")
    lines = log_lines(stack, job_name)["algo-1"]
    assert lines.count("the daemon is up") == 1 and lines.count("main is done") == 1
    wait_for_empty_slots(stack)
    assert living(mark) == []


def test_a_script_that_ignores_sigterm_ends_by_its_grace(stack: Stack, job_name: str):
    mark = f"stubborn-{job_name}"
    script = """import os, pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, lambda *_: print("not yet", flush=True))
pathlib.Path(os.environ["SM_MODEL_DIR"], "half.txt").write_text("half")
child = '''import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("child", flush=True)
time.sleep(999)
'''
subprocess.Popen([sys.executable, "-c", child, os.environ["MARK"]])
print("up", flush=True)
while True:
    time.sleep(1)
"""
    run_script(stack, stack.bucket, job_name, {"t.py": script}, "t.py", count=2, Environment={"MARK": mark})
    wait_for_line(stack, job_name, "child")
    wait_until(lambda: len(living(mark)) == 2, what="both children live")
    stack.client("sagemaker").stop_training_job(TrainingJobName=job_name)
    described = wait_for_end(stack, job_name, timeout=60)
    assert (described["TrainingJobStatus"], described["SecondaryStatus"]) == ("Stopped", "Stopped")
    steps = {step["Status"]: step for step in described["SecondaryStatusTransitions"]}
    stopping = (steps["Stopping"]["EndTime"] - steps["Stopping"]["StartTime"]).total_seconds()
    assert GRACE_SECONDS <= stopping < GRACE_SECONDS + 30
    assert "not yet" in log_lines(stack, job_name)["algo-1"]
    assert model_files(stack, described) == {"half.txt": b"half"}
    wait_for_empty_slots(stack)
    assert living(mark) == []


def test_twenty_jobs_at_once_on_four_nodes(stack: Stack, job_name: str):
    client = stack.client("sagemaker", config=Config(max_pool_connections=20))
    script = "import os\nprint('RAN ' + os.environ['TRAINING_JOB_NAME'] + ' ' + os.environ['SM_CURRENT_HOST'])\n"
    source = upload_source(stack, stack.bucket, {"t.py": script})
    counts = {f"{job_name[-8:]}-{number:02d}": (1, 2, 1, 4)[number % 4] for number in range(20)}

    def create(name: str) -> None:
        client.create_training_job(
            **job_request(stack, stack.bucket, name, source=source, program="t.py", count=counts[name])
        )

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(create, counts))
    for name, count in counts.items():
        described = wait_for_end(stack, name, timeout=200)
        assert described["TrainingJobStatus"] == "Completed", described.get("FailureReason")
        hosts = [f"algo-{number + 1}" for number in range(count)]
        lines = log_lines(stack, name)
        assert {host: [line for line in read if line.startswith("RAN ")] for host, read in lines.items()} == {
            host: [f"RAN {name} {host}"] for host in hosts
        }
    wait_for_empty_slots(stack)
    shown = json.loads(stack.trainshed("describe", next(iter(counts))).stdout)
    assert [attempt["Number"] for attempt in shown["Attempts"]] == [1]
