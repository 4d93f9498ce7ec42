"""Latency of DescribeTrainingJob while a gigabyte is uploaded through the S3 gateway.

    python -m benchmarks.bench_latency_under_upload [--size-mib 1024] [--rate 100] [--rounds 3] [--jobs 200]

Three states, taken in turns: nothing else runs; the upload goes straight to the object store; the upload goes through
the gateway. The second shows what the machine's own load (client, store, disk) costs the API, so that the third minus
the second is what the gateway adds. Calls start at a fixed rate (open loop) and a call's latency counts from when it
was due, so that a stall is seen by every call that it delays. The uploader is a process of its own.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import multiprocessing.synchronize
import os
import statistics
import tempfile
import threading
import time
import urllib.parse
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from botocore.credentials import Credentials

from benchmarks.api import Server, hammer
from benchmarks.gateway import MIB, Pattern, client
from tests.support.stack import Stack

BUCKET = "latency"
CALLERS = 16
STATES = ("idle", "upload to the store", "upload through the gateway")


@dataclass(frozen=True)
class Target:
    """Where and as whom the uploader writes."""

    endpoint: str
    access_key: str
    secret_key: str


@dataclass
class Figures:
    latencies: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    upload: list[float] = field(default_factory=list)

    def add(self, latencies: list[float]) -> None:
        self.latencies += latencies
        self.p99.append(percentile(latencies, 0.99))


def percentile(values: list[float], share: float) -> float:
    """Milliseconds."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000


def upload(
    target: Target, size: int, ready: multiprocessing.synchronize.Event, go: multiprocessing.synchronize.Event
) -> None:
    """Body of the uploader process: one object of `size` bytes, encrypted at rest on either way."""
    s3 = client(target.endpoint, target.access_key, target.secret_key)
    block = os.urandom(8 * MIB)
    ready.set()
    go.wait()
    s3.upload_fileobj(Pattern(size, block), BUCKET, "big", ExtraArgs={"ServerSideEncryption": "AES256"})


def paced(
    server: Server, requests: list[tuple[bytes, dict[str, str]]], rate: float, done: threading.Event
) -> list[float]:
    """Call at `rate` per second until `done`; seconds from when each call was due to the end of its answer."""
    latencies: list[float] = []
    local = threading.local()
    failures: list[str] = []

    def call(due: float, request: tuple[bytes, dict[str, str]]) -> None:
        if not hasattr(local, "connection"):
            local.connection = http.client.HTTPConnection(server.netloc, timeout=60)
        local.connection.request("POST", "/", *request)
        answer = local.connection.getresponse()
        body = answer.read()
        latencies.append(time.perf_counter() - due)
        if answer.status != 200:
            failures.append(f"{answer.status} {body[:300]!r}")

    with ThreadPoolExecutor(CALLERS) as pool:
        start, number = time.perf_counter(), 0
        while not done.is_set():
            due = start + number / rate
            done.wait(max(0.0, due - time.perf_counter()))
            pool.submit(call, due, requests[number % len(requests)])
            number += 1
    if failures:
        raise SystemExit(f"the API answered {failures[0]}")
    return latencies


def measure(
    server: Server,
    requests: list[tuple[bytes, dict[str, str]]],
    rate: float,
    target: Target | None,
    size: int,
    idle: float,
) -> tuple[list[float], float]:
    """Latencies, and the upload's MiB/s (0 without one). Without a target: for `idle` seconds."""
    done = threading.Event()
    if target is None:
        threading.Timer(idle, done.set).start()
        return paced(server, requests, rate, done), 0.0
    context = multiprocessing.get_context("spawn")
    ready, go = context.Event(), context.Event()
    process = context.Process(target=upload, args=(target, size, ready, go))
    process.start()
    ready.wait(60)
    took = 0.0

    def watch() -> None:
        nonlocal took
        began = time.perf_counter()
        go.set()
        process.join()
        took = time.perf_counter() - began
        done.set()

    watcher = threading.Thread(target=watch)
    watcher.start()
    latencies = paced(server, requests, rate, done)
    watcher.join()
    if process.exitcode != 0:
        raise SystemExit(f"the uploader ended with {process.exitcode}")
    return latencies, size / MIB / took


def targets_of(stack: Stack) -> dict[str, Target | None]:
    ports = json.loads((stack.home / "config.json").read_text())["ports"]
    identities = json.loads(next((stack.home / "store").rglob("s3.json")).read_text())["identities"]
    (store,) = identities[0]["credentials"]
    env = stack.env
    return {
        STATES[0]: None,
        STATES[1]: Target(f"http://127.0.0.1:{ports['store_s3']}", store["accessKey"], store["secretKey"]),
        STATES[2]: Target(env["AWS_ENDPOINT_URL_S3"], env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size-mib", type=int, default=1024)
    parser.add_argument("--rate", type=float, default=100.0, help="calls per second")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--idle-seconds", type=float, default=5.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trainshed-bench-") as folder:
        stack = Stack.up(Path(folder) / "home", "--nodes", "1")
        try:
            run(stack, options)
        finally:
            stack.down()


def run(stack: Stack, options: argparse.Namespace) -> None:
    env = stack.env
    keys = Credentials(env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"])
    server = Server("trainshed", env["AWS_ENDPOINT_URL"], keys, env["AWS_REGION"], stack.role)
    output = urllib.parse.urlsplit(server.create_body("any")["OutputDataConfig"]["S3OutputPath"]).netloc
    for bucket in (BUCKET, output):
        stack.client("s3").create_bucket(Bucket=bucket)
    names = [f"bench-{uuid.uuid4().hex}" for _ in range(options.jobs)]
    hammer(server, [server.signed("CreateTrainingJob", server.create_body(name)) for name in names], 4, 600)
    requests = [server.signed("DescribeTrainingJob", {"TrainingJobName": name}) for name in names]
    figures = {state: Figures() for state in STATES}
    targets = targets_of(stack)
    for number in range(options.rounds):
        for state in STATES if number % 2 == 0 else reversed(STATES):
            latencies, speed = measure(
                server, requests, options.rate, targets[state], options.size_mib * MIB, options.idle_seconds
            )
            figures[state].add(latencies)
            figures[state].upload.append(speed)
    print(f"DescribeTrainingJob, {options.rate:g} calls/s, {options.jobs} jobs, upload of {options.size_mib} MiB")
    for state, found in figures.items():
        speed = f"{statistics.median(found.upload):6.0f} MiB/s up" if any(found.upload) else ""
        print(
            f"{state:28} {len(found.latencies):6} calls  p50 {percentile(found.latencies, 0.5):7.2f} ms  "
            f"p99 {percentile(found.latencies, 0.99):7.2f} ms [{min(found.p99):.2f}–{max(found.p99):.2f}]  {speed}"
        )
    p99 = {state: statistics.median(found.p99) for state, found in figures.items()}
    print(
        f"p99 through the gateway: {p99[STATES[2]] / p99[STATES[0]]:.2f} × idle, "
        f"{p99[STATES[2]] / p99[STATES[1]]:.2f} × upload straight to the store"
    )


if __name__ == "__main__":
    main()
