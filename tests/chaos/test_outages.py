"""Each part is killed while a job runs and comes back after an outage: the job completes, every line is there once.

The supervisor is halted (SIGSTOP) for the time of the outage, since it would start the part again at once.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.jobs import log_lines, model_files, run_script, wait_for_end, wait_for_line
from tests.support.stack import Stack
from tests.support.wait import wait_until

pytestmark = pytest.mark.timeout(300)

SCRIPT = """import os, pathlib, sys, time
end = float(sys.argv[sys.argv.index("--seconds") + 1])
start, number = time.monotonic(), 0
while time.monotonic() - start < end:
    print(f"tick {number} of {os.environ['SM_CURRENT_HOST']}", flush=True)
    number += 1
    time.sleep(0.05)
print(f"ticks {number}", flush=True)
pathlib.Path(os.environ["SM_MODEL_DIR"], f"{os.environ['SM_CURRENT_HOST']}.txt").write_text(str(number))
"""


@pytest.fixture
def own_stack(tmp_path: Path) -> Iterator[Stack]:
    stack = Stack.up(tmp_path / "home", "--nodes", "2")
    yield stack
    stack.down()


def pid_of(stack: Stack, part: str) -> int:
    return int((stack.home / "run" / f"{part}.pid").read_text().split()[0])


def outage(stack: Stack, parts: list[str], seconds: float) -> None:
    supervisor = pid_of(stack, "supervisor")
    before = {part: pid_of(stack, part) for part in parts}
    os.kill(supervisor, signal.SIGSTOP)
    try:
        for pid in before.values():
            os.kill(pid, signal.SIGKILL)
        threading.Event().wait(seconds)  # the outage itself
    finally:
        os.kill(supervisor, signal.SIGCONT)
    wait_until(
        lambda: all(pid_of(stack, part) != pid for part, pid in before.items()),
        timeout=30,
        what=f"{parts} are started again",
    )


@pytest.mark.parametrize(
    ("parts", "seconds"),
    [
        pytest.param(["api"], 0, id="service-0"),
        pytest.param(["api", "ingest"], 20, id="service-and-ingest-20"),
        pytest.param(["gateway"], 0, id="gateway-0"),
        pytest.param(["gateway", "store"], 20, id="gateway-and-store-20"),
        pytest.param(["agent"], 0, id="agent-0"),
        pytest.param(["agent"], 20, id="agent-20"),
        pytest.param(["api", "ingest", "gateway", "store", "agent"], 60, id="everything-60"),
    ],
)
def test_a_job_survives_the_loss_of(own_stack: Stack, job_name: str, parts: list[str], seconds: float):
    own_stack.client("s3").create_bucket(Bucket="chaos")
    run_script(
        own_stack,
        "chaos",
        job_name,
        {"tick.py": SCRIPT},
        "tick.py",
        count=2,
        hyperparameters={"seconds": str(seconds + 6)},
    )
    wait_for_line(own_stack, job_name, "tick 3 ")
    outage(own_stack, parts, seconds)
    described = wait_for_end(own_stack, job_name, timeout=seconds + 90)
    assert described["TrainingJobStatus"] == "Completed", described.get("FailureReason")
    numbers = model_files(own_stack, described)
    for host, lines in log_lines(own_stack, job_name).items():
        count = int(numbers[f"{host}.txt"])
        assert [line for line in lines if line.startswith("tick ")] == [f"tick {n} of {host}" for n in range(count)]
        assert lines.count(f"ticks {count}") == 1
    secondary = [step["Status"] for step in described["SecondaryStatusTransitions"]]
    assert secondary.count("Training") == 1 and secondary[-1] == "Completed"
