"""A job that counts aloud, so that every line that is lost, doubled or out of order is seen."""

from __future__ import annotations

from typing import Any

from tests.support.jobs import log_lines, model_files, run_script, wait_for_line
from tests.support.stack import Stack

SCRIPT = """import os, pathlib, sys, time
end = float(sys.argv[sys.argv.index("--seconds") + 1])
host = os.environ["SM_CURRENT_HOST"]
start, number = time.monotonic(), 0
while time.monotonic() - start < end:
    print(f"tick {number} of {host}", flush=True)
    number += 1
    time.sleep(0.05)
print(f"ticks {number}", flush=True)
pathlib.Path(os.environ["SM_MODEL_DIR"], f"{host}.txt").write_text(str(number))
"""


def start_ticks(stack: Stack, name: str, seconds: float, count: int = 2) -> None:
    """A job on `count` instances that ticks twenty times a second; returns when its first lines are readable."""
    run_script(
        stack,
        stack.bucket,
        name,
        {"tick.py": SCRIPT},
        "tick.py",
        count=count,
        hyperparameters={"seconds": str(seconds)},
    )
    wait_for_line(stack, name, "tick 3 ")


def assert_ran_whole(stack: Stack, described: dict[str, Any]) -> None:
    """It completed, ran once, and every line of every host is there once and in order."""
    assert described["TrainingJobStatus"] == "Completed", described.get("FailureReason")
    hosts = [f"algo-{number + 1}" for number in range(described["ResourceConfig"]["InstanceCount"])]
    numbers = model_files(stack, described)
    assert sorted(numbers) == [f"{host}.txt" for host in hosts]
    lines = log_lines(stack, described["TrainingJobName"])
    assert sorted(lines) == hosts
    for host in hosts:
        count = int(numbers[f"{host}.txt"])
        ticks = [line for line in lines[host] if line.startswith("tick ")]
        assert ticks == [f"tick {number} of {host}" for number in range(count)]
        assert lines[host].count(f"ticks {count}") == 1
    secondary = [step["Status"] for step in described["SecondaryStatusTransitions"]]
    assert secondary.count("Training") == 1 and secondary[-1] == "Completed"
