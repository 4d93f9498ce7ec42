"""All AWS operations that the service answers, by botocore's name of their service."""

from __future__ import annotations

from importlib import import_module

from trainshed_service.wire.context import Operations

_ROOMS = {
    "sagemaker": "trainshed_service.sagemaker",
    "logs": "trainshed_service.cloudwatch_logs",
    "cloudwatch": "trainshed_service.cloudwatch",
    "sts": "trainshed_service.sts",
    "iam": "trainshed_service.iam",
}


def all_operations() -> dict[str, Operations]:
    return {name: getattr(import_module(room), "OPERATIONS", {}) for name, room in _ROOMS.items()}
