"""CPU time that the API process takes per call, which a busy machine disturbs far less than rates.

An API process over a home of its own gets the requests of `benchmarks.api` from one client and from eight; printed is
user plus system time of that process by the number of calls, beside the wall time that the calls took.

    python -m benchmarks.api_cpu [--jobs 10000] [--calls 2000] [--profile]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from botocore.credentials import Credentials

from benchmarks.api import CLIENTS, Figure, Server, fill, hammer
from tests.support.api_process import ApiProcess

_TICK = os.sysconf("SC_CLK_TCK")
_SECONDS = 600.0


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--calls", type=int, default=2_000)
    parser.add_argument("--profile", type=Path, help="a folder for py-spy's records of each kind of call")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        api = ApiProcess(Path(folder) / "home")
        api.start()
        try:
            admin = api.bootstrap.admin
            server = Server(
                "trainshed",
                api.url,
                Credentials(admin.access_key_id, admin.secret_access_key),
                "us-east-1",
                api.bootstrap.role_arn,
            )
            assert api.process is not None
            measure(server, api.process.pid, arguments)
        finally:
            api.stop()


def measure(server: Server, pid: int, arguments: argparse.Namespace) -> None:
    fill(server, arguments.jobs)
    calls: int = arguments.calls

    def creates() -> list[tuple[bytes, dict[str, str]]]:
        return [
            server.signed("CreateTrainingJob", server.create_body(f"bench-{uuid.uuid4().hex}")) for _ in range(calls)
        ]

    def describes() -> list[tuple[bytes, dict[str, str]]]:
        sample = server.jobs[:: max(1, len(server.jobs) // 500)]
        requests = [server.signed("DescribeTrainingJob", {"TrainingJobName": name}) for name in sample]
        return (requests * (calls // len(requests) + 1))[:calls]

    def lists() -> list[tuple[bytes, dict[str, str]]]:
        return [server.signed("ListTrainingJobs", {"MaxResults": 100})] * calls

    for label, make in (("create", creates), ("describe", describes), ("list", lists)):
        for clients in CLIENTS:
            requests = make()
            record = _record(pid, arguments.profile, f"{label}-{clients}") if arguments.profile else None
            before, began = cpu_seconds(pid), time.perf_counter()
            latencies = hammer(server, requests, clients, _SECONDS)
            wall, cpu = time.perf_counter() - began, cpu_seconds(pid) - before
            figure = Figure([], latencies)
            if record is not None:
                record.send_signal(2)
                record.wait()
            print(
                f"{label:9} {clients} client(s)  cpu {cpu / calls * 1000:6.3f} ms/call  {calls / wall:7.0f}/s  "
                f"p50 {figure.percentile(0.5):6.2f} ms  p99 {figure.percentile(0.99):6.2f} ms",
                flush=True,
            )


def _record(pid: int, folder: Path, label: str) -> subprocess.Popen[bytes]:
    """A sampling profile for as long as the calls take."""
    folder.mkdir(parents=True, exist_ok=True)
    return subprocess.Popen(
        [
            Path(sys.executable).with_name("py-spy"), "record", "--pid", str(pid), "--rate", "400", "--gil",
            "--threads", "--format", "raw", "--output", folder / f"{label}.txt", "--duration", "3600",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip


if __name__ == "__main__":
    main()
