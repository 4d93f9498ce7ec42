"""What a job's short-lived S3 credentials may do: its own inputs to read, its own outputs to write, nothing else."""

from __future__ import annotations

from typing import Any

from trainshed_service.identity.policy import job_policy
from trainshed_service.jobs.spec import output_base, split_s3_uri, submit_directory


def policy_of(request: dict[str, Any]) -> dict[str, Any]:
    """The policy document of one job, read from its request.

    Writable are `<S3OutputPath>/<job>/output/` and the checkpoint prefix; readable are the channels' prefixes and the
    submitted code.
    """
    read: set[tuple[str, str]] = set()
    write = {split_s3_uri(output_base(request) + "/")}
    for channel in request.get("InputDataConfig") or []:
        source = (channel.get("DataSource") or {}).get("S3DataSource")
        if source:
            read.add(split_s3_uri(source["S3Uri"]))
    code = submit_directory(request)
    if code:
        read.add(split_s3_uri(code))
    checkpoints = (request.get("CheckpointConfig") or {}).get("S3Uri")
    if checkpoints:
        bucket, prefix = split_s3_uri(checkpoints)
        write.add((bucket, prefix if not prefix or prefix.endswith("/") else prefix + "/"))
        read.add((bucket, prefix))
    return job_policy(read=read, write=write)
