"""What the rooms around a job need of its request, read in one place.

The request itself stays as it was sent; nothing here changes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

HOMOGENEOUS = "homogeneousCluster"
DEFAULT_MAX_RUNTIME_SECONDS = 86_400
_S3_URI = re.compile(r"^(?:s3|https)://([^/]+)/?(.*)$")


@dataclass(frozen=True)
class Member:
    """One instance that a job asks for; the position in the gang is its rank."""

    instance_type: str
    group: str = HOMOGENEOUS


def gang(request: dict[str, Any]) -> tuple[Member, ...]:
    """All instances of the job in rank order (`algo-1` is rank 0); groups follow each other as they were named."""
    resources = request["ResourceConfig"]
    groups = resources.get("InstanceGroups")
    if groups:
        return tuple(
            Member(group["InstanceType"], group["InstanceGroupName"])
            for group in groups
            for _ in range(group["InstanceCount"])
        )
    return (Member(resources["InstanceType"]),) * int(resources.get("InstanceCount", 1))


def instance_types(request: dict[str, Any]) -> str:
    """The types that a job asks for, each once, ordered, with commas between: `ml.c5.xlarge`."""
    return ",".join(sorted({member.instance_type for member in gang(request)}))


def max_runtime_seconds(request: dict[str, Any]) -> float:
    limit = (request.get("StoppingCondition") or {}).get("MaxRuntimeInSeconds")
    return float(limit if limit is not None else DEFAULT_MAX_RUNTIME_SECONDS)


def max_pending_seconds(request: dict[str, Any]) -> float | None:
    """How long the job is willing to wait for capacity; None: for as long as it takes."""
    limit = (request.get("StoppingCondition") or {}).get("MaxPendingTimeInSeconds")
    return float(limit) if limit is not None else None


def retries_allowed(request: dict[str, Any]) -> int:
    """How often a job may start again after an infrastructure fault."""
    return int((request.get("RetryStrategy") or {}).get("MaximumRetryAttempts", 0))


def output_base(request: dict[str, Any]) -> str:
    """`s3://bucket/prefix/<job>/output`, without a slash at the end."""
    return f"{request['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{request['TrainingJobName']}/output"


def compression(request: dict[str, Any]) -> str:
    return str(request["OutputDataConfig"].get("CompressionType") or "GZIP")


def model_artifacts(request: dict[str, Any]) -> str:
    """Where the model is (or is going to be)."""
    base = output_base(request)
    return f"{base}/model/" if compression(request) == "NONE" else f"{base}/model.tar.gz"


def submit_directory(request: dict[str, Any]) -> str | None:
    """The S3 URI of the user's code where an SDK sent one as a hyperparameter (with or without JSON quotes)."""
    value = (request.get("HyperParameters") or {}).get("sagemaker_submit_directory")
    if value is None:
        return None
    value = value.strip().strip('"')
    return value if value.startswith("s3://") else None


def split_s3_uri(uri: str) -> tuple[str, str]:
    """`s3://bucket/key` → (bucket, key). ValueError where it is no S3 URI."""
    match = _S3_URI.match(uri)
    if match is None:
        raise ValueError(f"{uri!r} is not an S3 URI of the form s3://bucket/prefix")
    return match.group(1), match.group(2)
