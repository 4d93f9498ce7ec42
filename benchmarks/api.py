"""CreateTrainingJob (durable), Describe and List at 10,000 jobs, beside moto's in-memory server in the same run.

Both servers get the same signed HTTP requests from the same client (raw sockets with keep-alive, signed beforehand, so
that the client costs little). Each figure is taken in rounds that alternate between the two servers; printed are the
medians over rounds with their spread, and the ratio ours / moto. Ours commits each create with a sync to disk; moto
keeps everything in memory. Ends with 1 where a ratio is below what it must be.

    python -m benchmarks.api [--jobs 10000] [--rounds 5] [--seconds 2]
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.support.jobs import IMAGE
from tests.support.ports import free_port
from tests.support.stack import Stack
from tests.support.wait import wait_until

CLIENTS = (1, 8)
MUST = {"CreateTrainingJob": 1.0, "DescribeTrainingJob": 1.0, "ListTrainingJobs": 5.0}
"""Least ratio ours / moto of each call's rate."""


@dataclass
class Server:
    name: str
    url: str
    credentials: Credentials
    region: str
    role: str
    jobs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.netloc = urllib.parse.urlsplit(self.url).netloc

    def signed(self, operation: str, body: dict[str, object]) -> tuple[bytes, dict[str, str]]:
        data = json.dumps(body).encode()
        headers = {"X-Amz-Target": f"SageMaker.{operation}", "Content-Type": "application/x-amz-json-1.1"}
        request = AWSRequest("POST", self.url + "/", data=data, headers=headers)
        SigV4Auth(self.credentials, "sagemaker", self.region).add_auth(request)
        return data, dict(request.prepare().headers)

    def create_body(self, name: str) -> dict[str, object]:
        return {
            "TrainingJobName": name,
            "RoleArn": self.role,
            "AlgorithmSpecification": {"TrainingImage": IMAGE, "TrainingInputMode": "File"},
            "OutputDataConfig": {"S3OutputPath": "s3://bench-out/"},
            "ResourceConfig": {"InstanceType": "ml.c5.xlarge", "InstanceCount": 64, "VolumeSizeInGB": 10},
            "StoppingCondition": {"MaxRuntimeInSeconds": 600},
            "HyperParameters": {f"parameter-{number}": str(number) for number in range(10)},
        }


def hammer(server: Server, requests: list[tuple[bytes, dict[str, str]]], clients: int, seconds: float) -> list[float]:
    """Send the requests from `clients` threads for `seconds` or until none is left; the latency of each, in seconds."""
    latencies: list[float] = []
    lock, start = threading.Lock(), threading.Barrier(clients + 1)
    iterator = iter(requests)
    failures: list[str] = []

    def client() -> None:
        own: list[float] = []
        connection = http.client.HTTPConnection(server.netloc, timeout=60)
        start.wait()
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            with lock:
                pair = next(iterator, None)
            if pair is None:
                break
            began = time.perf_counter()
            connection.request("POST", "/", pair[0], pair[1])
            answer = connection.getresponse()
            body = answer.read()
            own.append(time.perf_counter() - began)
            if answer.status != 200:
                failures.append(f"{answer.status} {body[:300]!r}")
                break
        connection.close()
        with lock:
            latencies.extend(own)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    start.wait()
    for thread in threads:
        thread.join()
    if failures:
        raise SystemExit(f"{server.name} answered {failures[0]}")
    return latencies


@dataclass
class Figure:
    rates: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)

    def add(self, latencies: list[float], wall: float) -> None:
        self.rates.append(len(latencies) / wall)
        self.latencies += latencies

    def percentile(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000


Make = Callable[[Server], list[tuple[bytes, dict[str, str]]]]


def measure(servers: list[Server], label: str, make: Make, clients: int, rounds: int, seconds: float) -> str:
    """Print the figures of one call, whose name `label` begins with; what is below its must, or nothing."""
    figures = {server.name: Figure() for server in servers}
    for _ in range(rounds):
        for server in servers:
            requests = make(server)
            began = time.perf_counter()
            latencies = hammer(server, requests, clients, seconds)
            figures[server.name].add(latencies, time.perf_counter() - began)
    ours, moto = (figures[server.name] for server in servers)
    ratios = [a / b for a, b in zip(ours.rates, moto.rates, strict=True)]
    for name, figure in figures.items():
        print(
            f"{label:26} {clients} client(s)  {name:10} {statistics.median(figure.rates):8.0f}/s "
            f"[{min(figure.rates):.0f}–{max(figure.rates):.0f}]  p50 {figure.percentile(0.5):7.2f} ms  "
            f"p99 {figure.percentile(0.99):7.2f} ms",
            flush=True,
        )
    ratio, must = statistics.median(ratios), MUST[label.split()[0]]
    print(f"{'':26} ratio ours/moto {ratio:.2f} [{min(ratios):.2f}–{max(ratios):.2f}], must {must:g}", flush=True)
    return "" if ratio >= must else f"{label}, {clients} client(s): {ratio:.2f} of moto's rate, must be {must:g}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        moto = subprocess.Popen(
            [Path(sys.executable).with_name("moto_server"), "-H", "127.0.0.1", "-p", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        stack = None
        try:
            stack = Stack.up(Path(folder) / "home", "--nodes", "1")
            stack.client("s3").create_bucket(Bucket="bench-out")
            env = stack.env
            servers = [
                Server(
                    "trainshed",
                    env["AWS_ENDPOINT_URL"],
                    Credentials(env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"]),
                    env["AWS_REGION"],
                    stack.role,
                ),
                Server(
                    "moto",
                    f"http://127.0.0.1:{port}",
                    Credentials("key", "secret"),
                    "us-east-1",
                    "arn:aws:iam::123456789012:role/Bench",
                ),
            ]
            wait_until(lambda: moto.poll() is not None or answers(servers[1]), timeout=60, what="moto answers")
            if moto.poll() is not None:
                raise SystemExit("moto_server ended at once; run it by hand to see why (is moto[server] installed?)")
            missed = run(servers, arguments.jobs, arguments.rounds, arguments.seconds)
        finally:
            moto.terminate()
            moto.wait()
            if stack is not None:
                stack.down()
    for text in missed:
        print(f"not reached: {text}")
    return 1 if missed else 0


def answers(server: Server) -> bool:
    try:
        connection = http.client.HTTPConnection(server.netloc, timeout=5)
        connection.request("GET", "/moto-api/")
        return connection.getresponse().status < 500
    except OSError:
        return False


def run(servers: list[Server], jobs: int, rounds: int, seconds: float) -> list[str]:
    """All calls, with one client and with several; which of them miss their must."""

    def creates(server: Server) -> list[tuple[bytes, dict[str, str]]]:
        names = [f"bench-{uuid.uuid4().hex}" for _ in range(int(1500 * seconds))]
        requests = [server.signed("CreateTrainingJob", server.create_body(name)) for name in names]
        server.jobs += names
        return requests

    found = [measure(servers, "CreateTrainingJob", creates, clients, rounds, seconds) for clients in CLIENTS]
    for server in servers:
        fill(server, jobs)

    def describes(server: Server) -> list[tuple[bytes, dict[str, str]]]:
        sample = server.jobs[:: max(1, len(server.jobs) // 500)]
        requests = [server.signed("DescribeTrainingJob", {"TrainingJobName": name}) for name in sample]
        return requests * 20

    def lists(server: Server) -> list[tuple[bytes, dict[str, str]]]:
        return [server.signed("ListTrainingJobs", {"MaxResults": 100})] * 10_000

    for label, make in ((f"DescribeTrainingJob @{jobs}", describes), (f"ListTrainingJobs @{jobs}", lists)):
        found += [measure(servers, label, make, clients, rounds, seconds) for clients in CLIENTS]
    return [text for text in found if text]


def fill(server: Server, jobs: int) -> None:
    """Bring the server to exactly the same kind of state: `jobs` jobs at least, and remember those that exist."""
    body = server.signed("ListTrainingJobs", {"MaxResults": 100})
    connection = http.client.HTTPConnection(server.netloc, timeout=120)
    existing: list[str] = []
    while True:
        connection.request("POST", "/", *body)
        page = json.loads(connection.getresponse().read())
        existing += [job["TrainingJobName"] for job in page["TrainingJobSummaries"]]
        if "NextToken" not in page:
            break
        body = server.signed("ListTrainingJobs", {"MaxResults": 100, "NextToken": page["NextToken"]})
    connection.close()
    missing = [f"bench-{uuid.uuid4().hex}" for _ in range(max(0, jobs - len(existing)))]
    requests = [server.signed("CreateTrainingJob", server.create_body(name)) for name in missing]
    hammer(server, requests, 8, 600)
    server.jobs = existing + missing
    print(f"{server.name}: {len(server.jobs)} jobs", flush=True)


if __name__ == "__main__":
    sys.exit(main())
