"""All AWS operations that the service answers, by botocore's name of their service."""

from __future__ import annotations

from trainshed_service import cloudwatch, cloudwatch_logs, iam, sagemaker, sts
from trainshed_service.wire.constraints import validator
from trainshed_service.wire.context import Operations


def all_operations() -> dict[str, Operations]:
    return {
        "sagemaker": sagemaker.OPERATIONS,
        "logs": cloudwatch_logs.OPERATIONS,
        "cloudwatch": cloudwatch.OPERATIONS,
        "sts": sts.OPERATIONS,
        "iam": iam.OPERATIONS,
    }


def load_validators() -> None:
    """Read the models of all operations now: a second of work that would otherwise fall to the first caller."""
    for service, operations in all_operations().items():
        for operation in operations:
            validator(service, operation)
