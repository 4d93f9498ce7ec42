"""How soon the next job of a warm pool runs: from CreateTrainingJob to its first line, and to its first all-reduce.

    python -m benchmarks.warm_start [--starts 30] [--fresh 5]

Each job goes through the whole product (API, scheduler, agent, sandbox) into a pool that an equal job has left. The
script says the time itself (one machine, one clock): `first line` after `import torch`, `all-reduce` when the first one
over gloo is done on every rank, two instances with a process each. `torchrun` is the same script started by torch's own
launcher in fresh processes, in the same run; `no pool` starts on an idle node that has been up for long enough to have
its preloaded parent. The ledger's median spans say where the time went. While a start is measured nothing asks the
service for anything.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from time import time
from typing import Any

from tests.support.jobs import job_request, log_lines, upload_source, wait_for_end
from tests.support.stack import Stack
from tests.support.wait import wait_until
from trainshed_service.cli.connection import Connection

KEEP_ALIVE = 900
IDLE_STARTS = 3
QUIET_SECONDS = 0.5
"""Before a start, for what the last one left to do; and after it, for the start itself."""
FIRST_LINE = """
import json, time
started = time.time()
import torch
print("SAID " + json.dumps({"started": started, "done": time.time()}))
"""
ALL_REDUCE = """
import json, time
started = time.time()
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1024)
dist.all_reduce(total)
assert total[0] == dist.get_world_size()
done = time.time()
print("SAID " + json.dumps({"started": started, "done": done}))
dist.destroy_process_group()
"""


@dataclass
class Starts:
    """Seconds from the request to what the script said; spans of the ledger by name."""

    name: str
    started: list[float] = field(default_factory=list)
    done: list[float] = field(default_factory=list)
    spans: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def row(self) -> str:
        median, p90 = _at(self.done, 0.5), _at(self.done, 0.9)
        return f"{self.name:<34} {len(self.done):>3} starts  median {median:.3f} s  P90 {p90:.3f} s"

    def ledger(self) -> str:
        rows = []
        for name, spans in self.spans.items():
            begin = statistics.median(start for start, _ in spans) * 1e3
            length = statistics.median(end for _, end in spans) * 1e3
            rows.append((begin, f"    {begin:8.1f} ms  + {length:8.1f} ms  {name} (×{len(spans)})"))
        return "\n".join(row for _, row in sorted(rows))


def _at(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def start(
    stack: Stack, source: str, starts: Starts, count: int, hyperparameters: dict[str, str], keep_alive: int = KEEP_ALIVE
) -> None:
    """One job, from its request to its pool being available again (or its nodes being free)."""
    name = f"warm-start-{uuid.uuid4().hex[:8]}"
    request = job_request(
        stack, stack.bucket, name, source=source, program="train.py", count=count, hyperparameters=hyperparameters
    )
    if keep_alive:
        request["ResourceConfig"]["KeepAlivePeriodInSeconds"] = keep_alive
    client = stack.client("sagemaker")
    Event().wait(QUIET_SECONDS)
    client.list_training_jobs(MaxResults=1)  # the connection is there
    begun = time()
    client.create_training_job(**request)
    Event().wait(QUIET_SECONDS)
    described = wait_for_end(stack, name, timeout=600)
    if described["TrainingJobStatus"] != "Completed":
        raise SystemExit(f"{name}: {described['TrainingJobStatus']}: {described.get('FailureReason')}")
    texts = [
        line.partition("SAID ")[2] for lines in log_lines(stack, name).values() for line in lines if "SAID " in line
    ]
    said = [json.loads(text) for text in texts]
    if len(said) != count:
        raise SystemExit(f"{name}: {len(said)} of {count} processes said when they started")
    starts.started.append(max(item["started"] for item in said) - begun)
    starts.done.append(max(item["done"] for item in said) - begun)
    for phase in _phases(stack, name):
        if phase.get("EndTime") is not None:
            span = (phase["StartTime"] - begun, phase["EndTime"] - phase["StartTime"])
            starts.spans.setdefault(phase["Phase"], []).append(span)
    if keep_alive:
        wait_until(
            lambda: _pool(stack, name) == "Available", timeout=60, every=0.1, what=f"the pool of {name} is available"
        )


def _phases(stack: Stack, name: str) -> list[dict[str, Any]]:
    phases: list[dict[str, Any]] = Connection(stack.home).get(f"/v1/training-jobs/{name}")["Phases"]
    return phases


def _pool(stack: Stack, name: str) -> str | None:
    described = stack.client("sagemaker").describe_training_job(TrainingJobName=name)
    status: str | None = (described.get("WarmPoolStatus") or {}).get("Status")
    return status


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=30)
    parser.add_argument("--fresh", type=int, default=5, help="starts by torchrun")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trainshed-bench-") as folder:
        stack = Stack.up(Path(folder) / "home", "--nodes", "4", settings={"TRAINSHED_PRELOAD": "1"})
        try:
            one = upload_source(stack, stack.bucket, {"train.py": FIRST_LINE})
            two = upload_source(stack, stack.bucket, {"train.py": ALL_REDUCE})
            rows = measure(stack, one, two, options.starts, options.fresh)
        finally:
            stack.down()
    for row in rows:
        print(row.row())
        print(row.ledger())
    print(f"load average {', '.join(f'{load:.1f}' for load in os.getloadavg())} on {os.cpu_count()} cores")
    idle, first, reduced, fresh = rows
    ratio = _at(fresh.done, 0.5) / _at(reduced.done, 0.5)
    print(f"ratio to torchrun with fresh processes: {ratio:.1f} ×")
    fast = _at(first.done, 0.5) <= 0.2 and _at(first.done, 0.9) <= 0.4
    fast = fast and _at(reduced.done, 0.5) <= 0.3 and _at(reduced.done, 0.9) <= 0.6
    return 0 if fast and ratio >= 8 and max(idle.done) <= 3.5 else 1


def measure(stack: Stack, one: str, two: str, starts: int, fresh: int) -> list[Starts]:
    idle = Starts("first line, idle node, no pool")
    _await_parent(stack, one, 1, {}, keep_alive=0)
    for _ in range(IDLE_STARTS):
        start(stack, one, idle, 1, {}, keep_alive=0)
    kinds = [
        (Starts("first line, 1 instance"), one, 1, {}, starts),
        (Starts("all-reduce, 2 instances"), two, 2, {"sagemaker_pytorch_ddp_enabled": "true"}, starts),
        (Starts("all-reduce, 2 instances, torchrun"), two, 2, {"sagemaker_torch_distributed_enabled": "true"}, fresh),
    ]
    for rows, source, count, hyperparameters, number in kinds:
        start(stack, source, Starts("cold"), count, hyperparameters)  # leaves the pool
        if not rows.name.endswith("torchrun"):
            _await_parent(stack, source, count, hyperparameters)
        for _ in range(number):
            start(stack, source, rows, count, hyperparameters)
    return [idle, *(rows for rows, *_ in kinds)]


def _await_parent(
    stack: Stack, source: str, count: int, hyperparameters: dict[str, str], keep_alive: int = KEEP_ALIVE
) -> None:
    """Until a start was a fork: the parent is started in the background, at a low priority."""

    def forked() -> bool:
        seen = Starts("until a parent is there")
        start(stack, source, seen, count, hyperparameters, keep_alive)
        return any("forked" in name for name in seen.spans)

    wait_until(forked, timeout=300, every=1.0, what="a start is a fork of a preloaded parent")


if __name__ == "__main__":
    raise SystemExit(main())
