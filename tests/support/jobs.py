"""CreateTrainingJob requests as an ordinary boto3 user writes them, and the life of the jobs that they make."""

from __future__ import annotations

import io
import tarfile
import uuid
from pathlib import Path
from typing import Any

import httpx

from tests.support.stack import Stack
from tests.support.wait import wait_until
from trainshed_service.embedded.home import Home

IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.2.0-cpu-py310"
GROUP = "/aws/sagemaker/TrainingJobs"
TERMINAL = {"Completed", "Failed", "Stopped"}


def source_archive(files: dict[str, str]) -> bytes:
    """A sourcedir.tar.gz with these files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            body = text.encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(body)
            entry.mode = 0o644
            archive.addfile(entry, io.BytesIO(body))
    return buffer.getvalue()


def upload_source(stack: Stack, bucket: str, files: dict[str, str]) -> str:
    """Store a source archive; its s3 URI."""
    key = f"code/{uuid.uuid4().hex}/sourcedir.tar.gz"
    stack.client("s3").put_object(Bucket=bucket, Key=key, Body=source_archive(files))
    return f"s3://{bucket}/{key}"


def job_request(
    stack: Stack,
    bucket: str,
    name: str,
    *,
    program: str | Path | None = None,
    source: str | None = None,
    hyperparameters: dict[str, str] | None = None,
    count: int = 1,
    instance_type: str = "ml.c5.xlarge",
    max_runtime: int = 600,
    **members: Any,
) -> dict[str, Any]:
    """A request; with `source` (archive URI) and `program` it runs that script, as the SDKs would say it."""
    parameters = dict(hyperparameters or {})
    if source is not None:
        parameters["sagemaker_submit_directory"] = source
    if program is not None:
        parameters["sagemaker_program"] = str(program)
    request: dict[str, Any] = {
        "TrainingJobName": name,
        "RoleArn": stack.role,
        "AlgorithmSpecification": {"TrainingImage": IMAGE, "TrainingInputMode": "File"},
        "OutputDataConfig": {"S3OutputPath": f"s3://{bucket}/out"},
        "ResourceConfig": {"InstanceType": instance_type, "InstanceCount": count, "VolumeSizeInGB": 10},
        "StoppingCondition": {"MaxRuntimeInSeconds": max_runtime},
        "HyperParameters": parameters,
    }
    return {**request, **members}


def run_script(stack: Stack, bucket: str, name: str, files: dict[str, str], program: str, **options: Any) -> str:
    """Create a job that runs `program` of `files`; its name."""
    source = upload_source(stack, bucket, files)
    request = job_request(stack, bucket, name, source=source, program=program, **options)
    stack.client("sagemaker").create_training_job(**request)
    return name


def wait_for_status(stack: Stack, name: str, statuses: set[str], timeout: float = 120) -> dict[str, Any]:
    client = stack.client("sagemaker")

    def look() -> dict[str, Any] | None:
        described = client.describe_training_job(TrainingJobName=name)
        return described if described["TrainingJobStatus"] in statuses else None

    return wait_until(look, timeout=timeout, every=0.2, what=f"{name} is one of {sorted(statuses)}")


def wait_for_end(stack: Stack, name: str, timeout: float = 120) -> dict[str, Any]:
    return wait_for_status(stack, name, TERMINAL, timeout)


def wait_for_line(stack: Stack, name: str, part: str, timeout: float = 60) -> None:
    wait_until(
        lambda: any(part in line for lines in log_lines(stack, name).values() for line in lines),
        timeout=timeout,
        every=0.2,
        what=f"a log line of {name} with {part!r}",
    )


def log_lines(stack: Stack, name: str) -> dict[str, list[str]]:
    """All lines of a job by host, read as the SDKs read them."""
    client = stack.client("logs")
    streams = client.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=f"{name}/")["logStreams"]
    lines: dict[str, list[str]] = {}
    for stream in streams:
        host = stream["logStreamName"].split("/")[1].rsplit("-", 1)[0]
        read: list[str] = []
        options: dict[str, Any] = {"startFromHead": True}
        while True:
            page = client.get_log_events(logGroupName=GROUP, logStreamName=stream["logStreamName"], **options)
            read += [event["message"] for event in page["events"]]
            if page["nextForwardToken"] == options.get("nextToken"):
                break
            options["nextToken"] = page["nextForwardToken"]
        lines[host] = read
    return lines


def model_files(stack: Stack, described: dict[str, Any]) -> dict[str, bytes]:
    """The files in the job's model.tar.gz."""
    bucket, key = described["ModelArtifacts"]["S3ModelArtifacts"].removeprefix("s3://").split("/", 1)
    body = stack.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        found = {}
        for member in archive.getmembers():
            handle = archive.extractfile(member)
            if handle is not None:
                found[member.name.removeprefix("./")] = handle.read()
        return found


def events_of(stack: Stack, job: str) -> list[dict[str, Any]]:
    """What REST tells of the job, oldest first."""
    url = f"{stack.env['AWS_ENDPOINT_URL']}/v1/training-jobs/{job}/events"
    headers = {"Authorization": f"Bearer {Home(stack.home).read().token}"}
    answer = httpx.get(url, headers=headers, trust_env=False).raise_for_status()
    events: list[dict[str, Any]] = answer.json()["events"]
    return events
