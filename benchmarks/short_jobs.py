"""How many short jobs a warm pool gets done: jobs with code, a log line and an artifact, over slots that are kept warm.

    python -m benchmarks.short_jobs [--jobs 300] [--slots 8] [--clients 4]

Every job goes through the whole product. The clock runs from the first CreateTrainingJob to the end of the last job, as
the service says it; afterwards each job's line and artifact are looked for. The script imports nothing beyond the
standard library: it is the product's own work that is measured.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import time
from typing import Any

from tests.support.jobs import job_request, log_lines, upload_source, wait_for_end
from tests.support.stack import Stack
from tests.support.wait import wait_until

MUST = 15.0
KEEP_ALIVE = 900
SCRIPT = """
import os, pathlib
pathlib.Path(os.environ["SM_MODEL_DIR"], "model.txt").write_text(os.environ["TRAINING_JOB_NAME"])
print("done")
"""
_CPU_FILES = "/proc/stat"


def request_of(stack: Stack, source: str, name: str) -> dict[str, Any]:
    request = job_request(stack, stack.bucket, name, source=source, program="train.py")
    request["ResourceConfig"]["KeepAlivePeriodInSeconds"] = KEEP_ALIVE
    return request


def run_all(stack: Stack, source: str, names: list[str], clients: int) -> None:
    """Create all, then wait for the last end."""

    def create(part: list[str]) -> None:
        client = stack.client("sagemaker")
        for name in part:
            client.create_training_job(**request_of(stack, source, name))

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(create, [names[number::clients] for number in range(clients)]))
    client = stack.client("sagemaker")

    def unfinished() -> int:
        answer = client.list_training_jobs(StatusEquals="InProgress", NameContains=names[0].rsplit("-", 1)[0])
        return len(answer["TrainingJobSummaries"])

    wait_until(lambda: unfinished() == 0, timeout=1800, every=1.0, what="all jobs have ended")


def busy_seconds() -> float:
    """CPU time of the whole machine so far, without idling and waiting."""
    with open(_CPU_FILES, encoding="ascii") as file:
        fields = [int(word) for word in file.readline().split()[1:]]
    return (sum(fields[:3]) + sum(fields[5:8])) / os.sysconf("SC_CLK_TCK")


def check(stack: Stack, name: str) -> float:
    """Code, log and artifact of one job; its end in epoch seconds."""
    described = wait_for_end(stack, name, timeout=60)
    if described["TrainingJobStatus"] != "Completed":
        raise SystemExit(f"{name}: {described['TrainingJobStatus']}: {described.get('FailureReason')}")
    if not any("done" in line for lines in log_lines(stack, name).values() for line in lines):
        raise SystemExit(f"{name}: its line is not in the log")
    bucket, _, key = described["ModelArtifacts"]["S3ModelArtifacts"].removeprefix("s3://").partition("/")
    stack.client("s3").head_object(Bucket=bucket, Key=key)
    return float(described["TrainingEndTime"].timestamp())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--clients", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trainshed-bench-") as folder:
        stack = Stack.up(Path(folder) / "home", "--nodes", str(options.slots), settings={"TRAINSHED_PRELOAD": "1"})
        try:
            source = upload_source(stack, stack.bucket, {"train.py": SCRIPT})
            run = uuid.uuid4().hex[:6]
            run_all(stack, source, [f"warm-{run}-{number}" for number in range(options.slots)], options.clients)
            names = [f"short-{run}-{number}" for number in range(options.jobs)]
            busy, begun = busy_seconds(), time()
            run_all(stack, source, names, options.clients)
            busy = busy_seconds() - busy
            ends = [check(stack, name) for name in names]
        finally:
            stack.down()
    rate = options.jobs / (max(ends) - begun)
    print(f"{options.jobs} jobs over {options.slots} warm slots: {rate:.1f} completed per second (must {MUST:.0f})")
    print(f"CPU time of the machine per job: {busy / options.jobs * 1e3:.0f} ms on {os.cpu_count()} cores")
    print(f"load average {', '.join(f'{load:.1f}' for load in os.getloadavg())}")
    return 0 if rate >= MUST else 1


if __name__ == "__main__":
    raise SystemExit(main())
