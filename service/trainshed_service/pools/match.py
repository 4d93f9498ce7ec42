"""The fields that a job and a warm pool must have equal, and how they differ.

Rule: AWS's documentation of managed warm pools, "matching criteria". Image, hyperparameters, channels, output and
environment are free. The fields themselves are kept beside their hash, to explain a miss.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

Request = Mapping[str, Any]
Fields = dict[str, Any]


class Difference(NamedTuple):
    """A field that keeps a job from a pool."""

    field: str
    wanted: Any
    has: Any


def may_keep_warm(request: Request) -> bool:
    """Whether the cluster of such a job can be a warm pool: not on spot capacity, and of one instance group."""
    resources = request.get("ResourceConfig") or {}
    return not request.get("EnableManagedSpotTraining") and bool(resources.get("InstanceType"))


def keep_alive_seconds(request: Request) -> int:
    """For how long the job's cluster is to be kept; 0 where not at all."""
    return int((request.get("ResourceConfig") or {}).get("KeepAlivePeriodInSeconds") or 0)


def match_fields(request: Request) -> Fields:
    """Every field of the criteria by its name in the request; absent ones as their default."""
    resources = request.get("ResourceConfig") or {}
    vpc = request.get("VpcConfig") or {}
    chaining = bool((request.get("SessionChainingConfig") or {}).get("EnableSessionTagChaining"))
    return {
        "RoleArn": request.get("RoleArn"),
        "ResourceConfig.InstanceCount": resources.get("InstanceCount"),
        "ResourceConfig.InstanceType": resources.get("InstanceType"),
        "ResourceConfig.VolumeKmsKeyId": resources.get("VolumeKmsKeyId") or None,
        "ResourceConfig.VolumeSizeInGB": resources.get("VolumeSizeInGB"),
        "VpcConfig.SecurityGroupIds": sorted(vpc.get("SecurityGroupIds") or []),
        "VpcConfig.Subnets": sorted(vpc.get("Subnets") or []),
        "EnableInterContainerTrafficEncryption": bool(request.get("EnableInterContainerTrafficEncryption")),
        "EnableNetworkIsolation": bool(request.get("EnableNetworkIsolation")),
        "SessionChainingConfig.EnableSessionTagChaining": chaining,
    }


def key_of(fields: Fields) -> str:
    """Equal for equal fields."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def match_key(request: Request) -> str | None:
    """The key by which the job finds a pool; None where it can have none."""
    return key_of(match_fields(request)) if may_keep_warm(request) else None


def differences(wanted: Fields, has: Fields) -> list[Difference]:
    """The fields that differ, in the order of the criteria."""
    return [Difference(name, wanted[name], has.get(name)) for name in wanted if wanted[name] != has.get(name)]
