"""`make demo`: the main job end to end on this machine, as a user's own script would do it with boto3.

Starts an installation of two nodes in `.trainshed/demo`, uploads the data and the source of examples/gpt, submits the
job, follows algo-1's log, checks that the loss fell and that the model loads, and ends the installation (KEEP=1 leaves
it running). May be run again at any time, also after it was broken off. Exit code 0 only where every check held.
"""

import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from datetime import datetime
from pathlib import Path
from typing import Any

import boto3
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".trainshed" / "demo"
EXAMPLE = ROOT / "examples" / "gpt"
TRAINSHED = Path(sys.executable).with_name("trainshed")
LOG_GROUP = "/aws/sagemaker/TrainingJobs"
LOSS = re.compile(r"\bloss=([0-9.eE+-]+);")
PROGRESS = re.compile(r"progress=([0-9]+)%")
FALL = 0.75  # the last loss must be below this share of the first
TERMINAL = ("Completed", "Failed", "Stopped")

console = Console(highlight=False, soft_wrap=True)


class DemoError(Exception):
    """A check that did not hold, in words."""


def main() -> int:
    keep = os.environ.get("KEEP", "") not in ("", "0")
    started = time.monotonic()
    console.rule("[bold]Trainshed demo[/]")
    if command("up", "--detach", "--nodes", "2") != 0:
        return 1
    up_seconds = time.monotonic() - started
    try:
        load_environment([str(TRAINSHED), "env", "--home", str(HOME)])
        run_job(up_seconds, started, log_in=f".venv/bin/trainshed dashboard --home {shown(HOME)}")
    except DemoError as error:
        console.print(f"[red]demo failed:[/] {error}", markup=True)
        console.print(f"logs of the service: {HOME / 'log'}", markup=False)
        return 1
    finally:
        if keep:
            console.print(f"It goes on at {os.environ.get('AWS_ENDPOINT_URL')}; end it with:")
            console.print(f"  .venv/bin/trainshed down --home {shown(HOME)}", markup=False)
        else:
            command("down")
    next_steps(keep)
    return 0


def command(name: str, *words: str) -> int:
    return subprocess.run([str(TRAINSHED), name, "--home", str(HOME), *words], check=False).returncode


def load_environment(printing: list[str]) -> None:
    """What `eval "$(trainshed env)"` does in a shell, for this process: a real shell evaluates the lines."""
    script = 'eval "$("$0" "$@" 2>/dev/null)" && env -0'
    printed = subprocess.run(["sh", "-c", script, *printing], capture_output=True, check=True).stdout
    fresh = dict(entry.split("=", 1) for entry in printed.decode(errors="surrogateescape").split("\0") if "=" in entry)
    os.environ.clear()
    os.environ.update(fresh)


def run_job(up_seconds: float, started: float, *, log_in: str) -> None:
    """Submit, follow, check. `log_in`: the command that prints a link to the dashboard. Raises DemoError."""
    s3, sagemaker = boto3.client("s3"), boto3.client("sagemaker")
    account = boto3.client("sts").get_caller_identity()["Account"]
    bucket = f"sagemaker-{os.environ['AWS_REGION']}-{account}"
    begun = time.monotonic()
    upload(s3, bucket)
    upload_seconds = time.monotonic() - begun
    request = job_request(bucket)
    name = request["TrainingJobName"]
    begun = time.monotonic()
    arn = sagemaker.create_training_job(**request)["TrainingJobArn"]
    console.print(f"submitted {arn} in {(time.monotonic() - begun) * 1000:.0f} ms", markup=False)
    console.print(f"watch it in a browser: [bold]{os.environ['AWS_ENDPOINT_URL']}/jobs/{name}[/]")
    console.print(f"  for a link that logs you in: {log_in}", markup=False)
    console.print("  or log in with the token that `trainshed env` shows as TRAINSHED_TOKEN", markup=False)
    lines = follow(name)
    job = sagemaker.describe_training_job(TrainingJobName=name)
    if job["TrainingJobStatus"] != "Completed":
        raise DemoError(f"{name} is {job['TrainingJobStatus']}: {job.get('FailureReason', 'no reason given')}")
    first, last = check_loss(lines)
    uri = job["ModelArtifacts"]["S3ModelArtifacts"]
    sample = check_model(s3, uri)
    console.rule()
    console.print(f"loss {first:.3f} → {last:.3f} over {len(lines)} lines of algo-1's log")
    console.print(f"the model says: {sample!r}", markup=False)
    console.print(f"model: [bold]{uri}[/]")
    console.print("wall time by phase:")
    rows = [("service up", up_seconds), ("upload of data and source", upload_seconds), *phases(name)]
    for label, seconds in rows:
        console.print(f"  {label:<28}{seconds:>8.1f} s", markup=False)
    console.print(f"  {'everything':<28}{time.monotonic() - started:>8.1f} s", markup=False)
    console.print(f"dashboard: [bold]{os.environ['AWS_ENDPOINT_URL']}/jobs/{name}[/]")


def upload(s3: Any, bucket: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, EXAMPLE / "prepare_data.py", folder], check=True, stdout=subprocess.DEVNULL)
        for path in sorted(Path(folder).iterdir()):
            s3.upload_file(str(path), bucket, f"gpt/data/{path.name}")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in ("train.py", "model.py", "data.py"):
            archive.add(EXAMPLE / name, arcname=name)
    s3.put_object(Bucket=bucket, Key="gpt/source/sourcedir.tar.gz", Body=buffer.getvalue())
    console.print(f"uploaded the data and the source to s3://{bucket}/gpt/", markup=False)


def job_request(bucket: str) -> dict[str, Any]:
    text = (EXAMPLE / "job.json").read_text()
    text = text.replace("${BUCKET}", bucket).replace("${ROLE_ARN}", os.environ["SAGEMAKER_ROLE"])
    request: dict[str, Any] = json.loads(text)
    request["TrainingJobName"] = f"gpt-{datetime.now():%Y%m%d-%H%M%S}"
    return request


def follow(name: str) -> list[str]:
    """algo-1's lines, shown as they come, above a progress line; returns when the job has ended and all are read."""
    sagemaker, logs = boto3.client("sagemaker"), boto3.client("logs")
    lines: list[str] = []
    position: dict[str, str] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        bar = progress.add_task("waiting", total=100)
        while True:
            # The status first: what an ended job had still to say is then in this very pass.
            job = sagemaker.describe_training_job(TrainingJobName=name)
            for line in new_lines(logs, name, position):
                lines.append(line)
                progress.console.print(line, markup=False)
                if match := PROGRESS.search(line):
                    progress.update(bar, completed=int(match[1]))
            progress.update(bar, description=job.get("SecondaryStatus", job["TrainingJobStatus"]))
            if job["TrainingJobStatus"] in TERMINAL:
                return lines
            time.sleep(0.5)


def new_lines(logs: Any, name: str, position: dict[str, str]) -> list[str]:
    """What algo-1's stream holds beyond `position`, which is moved on."""
    if "stream" not in position:
        found = logs.describe_log_streams(logGroupName=LOG_GROUP, logStreamNamePrefix=f"{name}/algo-1-")["logStreams"]
        if not found:
            return []
        position["stream"] = found[0]["logStreamName"]
    lines: list[str] = []
    while True:
        token = {"nextToken": position["token"]} if "token" in position else {}
        page = logs.get_log_events(
            logGroupName=LOG_GROUP, logStreamName=position["stream"], startFromHead=True, **token
        )
        lines += [event["message"] for event in page["events"]]
        if page["nextForwardToken"] == position.get("token"):
            return lines
        position["token"] = page["nextForwardToken"]


def check_loss(lines: list[str]) -> tuple[float, float]:
    losses = [float(match[1]) for line in lines for match in LOSS.finditer(line)]
    if len(losses) < 2:
        raise DemoError(f"the log shows {len(losses)} losses; at least 2 are needed to see it fall")
    if not losses[-1] < losses[0] * FALL:
        raise DemoError(f"the loss did not fall clearly: {losses[0]:.3f} → {losses[-1]:.3f}")
    return losses[0], losses[-1]


def check_model(s3: Any, uri: str) -> str:
    """Download the artifact, load it and let it write. The script's own loader does it, in a process of its own."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tar.gz"
        s3.download_file(bucket, key, str(path))
        done = subprocess.run(
            [sys.executable, EXAMPLE / "generate.py", path, "--prompt", "def ", "--length", "60"],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        raise DemoError(f"the model in {uri} does not load: {done.stderr.strip()[-500:]}")
    return done.stdout.strip()


def phases(name: str) -> list[tuple[str, float]]:
    """Seconds of each step of the service and of algo-1: the job's phase ledger, over REST with the user's token."""
    ledger = rest(f"/v1/training-jobs/{name}")["Phases"]
    return [
        (f"{row['Host']}: {row['Phase']}", row["EndTime"] - row["StartTime"])
        for row in ledger
        if row["Host"] in ("service", "algo-1") and row["EndTime"] is not None
    ]


def rest(path: str) -> Any:
    request = urllib.request.Request(
        os.environ["AWS_ENDPOINT_URL"] + path, headers={"Authorization": f"Bearer {os.environ['TRAINSHED_TOKEN']}"}
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
        return json.load(answer)


def next_steps(keep: bool) -> None:
    console.rule("[bold]it works[/]")
    console.print("Use it with your own scripts:", markup=False)
    if not keep:
        console.print(f"  .venv/bin/trainshed up --detach --home {shown(HOME)}", markup=False)
    console.print(f"  .venv/bin/trainshed dashboard --home {shown(HOME)}      # a link that logs you in", markup=False)
    console.print(f'  eval "$(.venv/bin/trainshed env --home {shown(HOME)})"', markup=False)
    console.print("  then boto3, the AWS CLI and the SageMaker SDK talk to it as they are (README.md has examples)")


def shown(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


if __name__ == "__main__":
    sys.exit(main())
