"""submit, ps, describe, logs, stop: the user's side of a job."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from botocore.exceptions import BotoCoreError, ClientError
from rich.table import Table

from trainshed_service.cli.connection import Connection
from trainshed_service.cli.errors import CommandError
from trainshed_service.cli.shown import out

PRIORITY_TAG = "trainshed:priority"
LOG_GROUP = "/aws/sagemaker/TrainingJobs"
TERMINAL = ("Completed", "Failed", "Stopped")
EXIT_OF_END = {"Completed": 0, "Failed": 2, "Stopped": 3}
_FOLLOW_SECONDS = 1.0
_COLOURS = {"Completed": "green", "Failed": "red", "Stopped": "yellow", "Stopping": "yellow", "InProgress": "cyan"}


@contextmanager
def explained(connection: Connection) -> Iterator[None]:
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        raise connection.explain(error) from error


def submit(folder: Path | None, file: Path, priority: int | None = None) -> None:
    """Send the request in the file as it is (with the tag of a priority, where given); print the job's ARN."""
    request = read_request(file)
    if priority is not None:
        others = [tag for tag in request.get("Tags") or [] if tag.get("Key") != PRIORITY_TAG]
        request = {**request, "Tags": [*others, {"Key": PRIORITY_TAG, "Value": str(priority)}]}
    connection = Connection(folder)
    with explained(connection):
        print(connection.aws("sagemaker").create_training_job(**request)["TrainingJobArn"])


def read_request(file: Path) -> dict[str, Any]:
    """A CreateTrainingJob request from JSON or YAML (`-`: standard input). Raises CommandError."""
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text()
        content = json.loads(text) if file.suffix == ".json" else yaml.load(text, _PlainLoader)
    except OSError as error:
        raise CommandError(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, yaml.YAMLError) as error:
        raise CommandError(f"{file} is neither JSON nor YAML: {error}") from error
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise CommandError(f"{file} must hold one object with the members of a CreateTrainingJob request")
    return content


class _PlainLoader(yaml.SafeLoader):
    """YAML without dates: a name such as 2026-01-01 stays a string, as in JSON."""


_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def list_jobs(folder: Path | None, limit: int, status: str | None) -> None:
    connection = Connection(folder)
    client = connection.aws("sagemaker")
    filters: dict[str, Any] = {"StatusEquals": status} if status else {}
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("NAME", "STATUS", "STEP", "CREATED", "TOOK", "WAITS"):
        table.add_column(heading, overflow="fold")
    waiting = {job["name"]: job for job in connection.get("/v1/queue", {"limit": "1000"})["jobs"]}
    with explained(connection):
        pages = client.get_paginator("list_training_jobs").paginate(
            SortBy="CreationTime",
            SortOrder="Descending",
            PaginationConfig={"MaxItems": limit, "PageSize": 100},
            **filters,
        )
        for page in pages:
            for job in page["TrainingJobSummaries"]:
                name = job["TrainingJobStatus"]
                # A job that was stopped in the queue never trained: it ended when it last changed.
                ended = job["LastModifiedTime"] if name in TERMINAL else None
                table.add_row(
                    job["TrainingJobName"],
                    f"[{_COLOURS.get(name, 'white')}]{name}[/]",
                    job.get("SecondaryStatus", ""),
                    job["CreationTime"].astimezone().strftime("%Y-%m-%d %H:%M:%S"),
                    took(job["CreationTime"], job.get("TrainingEndTime", ended)),
                    waits(waiting.get(job["TrainingJobName"])),
                )
    out.print(table if table.row_count else "no jobs")


def waits(queued: dict[str, Any] | None) -> str:
    """Why a job waits, its place and when it is going to start."""
    if queued is None:
        return ""
    start = queued["projectedStart"]
    when = datetime.fromtimestamp(start, UTC).astimezone().strftime("; about %Y-%m-%d %H:%M") if start else ""
    reason = queued["waitingReason"].removeprefix("Waiting for capacity: ").removeprefix("Waiting: ")
    return f"#{queued['queuePosition'] + 1}: {reason}{when}"


def took(start: datetime, end: datetime | None) -> str:
    """Wall time as h:mm:ss."""
    seconds = int(((end or datetime.now(UTC)) - start).total_seconds())
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def describe(folder: Path | None, name: str) -> None:
    """AWS's members and ours: notices, why it waits, attempts, hosts, the phase ledger."""
    text = json.dumps(Connection(folder).get(f"/v1/training-jobs/{quote(name, safe='')}"), indent=2)
    if out.is_terminal:
        out.print_json(text)
    else:
        print(text)


def stop(folder: Path | None, name: str) -> None:
    connection = Connection(folder)
    with explained(connection):
        connection.aws("sagemaker").stop_training_job(TrainingJobName=name)
    print(f"{name} is stopping")


def logs(folder: Path | None, name: str, follow: bool) -> None:
    """Print all lines so far; with `follow` go on until the job ends, then exit by how it ended (0, 2, 3)."""
    connection = Connection(folder)
    sagemaker, cloudwatch = connection.aws("sagemaker"), connection.aws("logs")
    tokens: dict[str, str] = {}
    with explained(connection):
        while True:
            # The status is read before the lines: what an ended job still had to say is then in this very pass.
            described = sagemaker.describe_training_job(TrainingJobName=name)
            for host, text in new_lines(cloudwatch, name, tokens):
                print(f"{host} | {text}" if len(tokens) > 1 else text, flush=True)
            status = described["TrainingJobStatus"]
            if not follow or status in TERMINAL:
                break
            time.sleep(_FOLLOW_SECONDS)
    if follow and status != "Completed":
        reason = described.get("FailureReason", "")
        raise CommandError(f"{name} is {status}{': ' + reason if reason else ''}", EXIT_OF_END[status])


def new_lines(client: Any, job: str, tokens: dict[str, str]) -> Iterator[tuple[str, str]]:
    """(host, line) of all streams of the job beyond `tokens`, which is moved on."""
    streams = client.get_paginator("describe_log_streams").paginate(
        logGroupName=LOG_GROUP, logStreamNamePrefix=f"{job}/"
    )
    for stream in [stream["logStreamName"] for page in streams for stream in page["logStreams"]]:
        tokens.setdefault(stream, "")
        host = stream.rpartition("/")[2].rpartition("-")[0]
        while True:
            position = {"nextToken": tokens[stream]} if tokens[stream] else {}
            page = client.get_log_events(logGroupName=LOG_GROUP, logStreamName=stream, startFromHead=True, **position)
            yield from ((host, event["message"]) for event in page["events"])
            # An empty page is not the end; only the token that comes back unchanged is.
            if page["nextForwardToken"] == tokens[stream]:
                break
            tokens[stream] = page["nextForwardToken"]
