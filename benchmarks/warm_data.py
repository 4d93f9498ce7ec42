"""Start of a job with a File channel that this node has brought before, against one that it has not.

    python -m benchmarks.warm_data [--size-mib 1024] [--objects 16] [--cold 3] [--warm 30]

A start is measured from before CreateTrainingJob is sent to the first line of the user's script, which says the time
itself (one machine, one clock). Cold starts have a prefix of their own each, so that nothing of them is cached; warm
ones use those prefixes again in turns. Each script reads the size of every file and the first and last bytes, so that
a start that brought something else is an error and no figure. Jobs go through the whole product: API, scheduler,
agent, sandbox, gateway, store.
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
from time import time
from typing import Any

from tests.support.jobs import job_request, log_lines, upload_source, wait_for_end
from tests.support.stack import Stack

MIB = 1 << 20
SCRIPT = """
import time
first = time.time()
import json, os, pathlib
folder = pathlib.Path(os.environ["SM_CHANNEL_TRAIN"])
files = []
for path in sorted(folder.iterdir()):
    with path.open("rb") as file:
        head = file.read(16)
        file.seek(-16, 2)
        files.append([path.name, path.stat().st_size, head.hex(), file.read().hex()])
print(json.dumps({"first": first, "files": files}))
"""


@dataclass
class Starts:
    """Seconds each: create to first line; the channel's own part of it, from the phase ledger."""

    whole: list[float] = field(default_factory=list)
    channel: list[float] = field(default_factory=list)

    def row(self, name: str) -> str:
        whole = sorted(self.whole)
        p90 = whole[min(len(whole) - 1, int(0.9 * len(whole)))]
        return (
            f"{name:<6} {len(whole):>3} starts   create to first line: median {statistics.median(whole):7.3f} s, "
            f"P90 {p90:7.3f} s   channel alone: median {statistics.median(self.channel):7.3f} s"
        )


def fill(stack: Stack, bucket: str, prefix: str, objects: int, size: int) -> list[list[Any]]:
    """Store the objects; what a job is to find of them."""
    s3 = stack.client("s3")
    block = os.urandom(MIB)
    expected = []
    for number in range(objects):
        head = uuid.uuid4().bytes
        body = head + block * (size // MIB - 1) + block[16:]
        name = f"part-{number:03}"
        s3.put_object(Bucket=bucket, Key=f"{prefix}/{name}", Body=body)
        expected.append([name, size, head.hex(), block[-16:].hex()])
    return expected


def start(stack: Stack, bucket: str, source: str, prefix: str, expected: list[list[Any]], starts: Starts) -> None:
    name = f"warm-data-{uuid.uuid4().hex[:8]}"
    channel = {
        "ChannelName": "train",
        "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{bucket}/{prefix}"}},
    }
    request = job_request(stack, bucket, name, source=source, program="train.py", InputDataConfig=[channel])
    client = stack.client("sagemaker")
    client.list_training_jobs(MaxResults=1)  # the connection is there
    begun = time()
    client.create_training_job(**request)
    described = wait_for_end(stack, name, timeout=600)
    if described["TrainingJobStatus"] != "Completed":
        raise SystemExit(f"{name}: {described['TrainingJobStatus']}: {described.get('FailureReason')}")
    line = next(line for line in log_lines(stack, name)["algo-1"] if line.startswith('{"first"'))
    said = json.loads(line)
    if said["files"] != expected:
        raise SystemExit(f"{name} found other files than were stored: {said['files']}")
    starts.whole.append(said["first"] - begun)
    phases = json.loads(stack.trainshed("describe", name).stdout)["Phases"]
    span = next(phase for phase in phases if phase["Phase"] == "channel train")
    starts.channel.append(span["EndTime"] - span["StartTime"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size-mib", type=int, default=1024, help="of the channel")
    parser.add_argument("--objects", type=int, default=16)
    parser.add_argument("--cold", type=int, default=3, help="cold starts, each with a channel of its own")
    parser.add_argument("--warm", type=int, default=30)
    options = parser.parse_args()
    size = options.size_mib // options.objects * MIB
    with tempfile.TemporaryDirectory(prefix="trainshed-bench-") as folder:
        stack = Stack.up(Path(folder) / "home", "--nodes", "1")
        try:
            bucket = stack.bucket
            source = upload_source(stack, bucket, {"train.py": SCRIPT})
            channels = [f"data/{number}" for number in range(options.cold)]
            expected = {prefix: fill(stack, bucket, prefix, options.objects, size) for prefix in channels}
            small = Starts()
            expected["small"] = fill(stack, bucket, "small", 1, MIB)
            start(stack, bucket, source, "small", expected["small"], small)  # the first job of an agent warms it up
            cold, warm = Starts(), Starts()
            for prefix in channels:
                start(stack, bucket, source, prefix, expected[prefix], cold)
            for number in range(options.warm):
                prefix = channels[number % len(channels)]
                start(stack, bucket, source, prefix, expected[prefix], warm)
        finally:
            stack.down()
    print(f"channel of {options.objects} objects, {size * options.objects / 1e9:.2f} GB")
    print(cold.row("cold"))
    print(warm.row("warm"))
    ratio = statistics.median(cold.whole) / statistics.median(warm.whole)
    alone = statistics.median(cold.channel) / statistics.median(warm.channel)
    print(f"ratio: {ratio:.1f} × for the start, {alone:.0f} × for the channel alone")
    return 0 if ratio >= 5 else 1


if __name__ == "__main__":
    raise SystemExit(main())
