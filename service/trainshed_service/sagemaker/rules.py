"""Rules of CreateTrainingJob that tie members together, which the service model cannot state.

They run on a request that satisfies the model. Where AWS's own sentence is known it is used, since tools look for it.
What is legal but not provided here is the matter of `support`, which runs after this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import regex

from trainshed_service.wire.constraints import Violation, describe
from trainshed_service.wire.errors import ApiError, validation_error

Request = Mapping[str, Any]

MAX_RUNTIME_SECONDS = 28 * 24 * 3600
_SOURCES = ("S3DataSource", "FileSystemDataSource", "DatasetSource")


def check_create(request: Request) -> None:
    """Raise ValidationException for the first rule that the request breaks."""
    _required(request)
    _algorithm(request.get("AlgorithmSpecification") or {})
    if request.get("ResourceConfig") is not None:
        _resources(request["ResourceConfig"], bool(request.get("EnableManagedSpotTraining")))
    _stopping(request)
    _channels(request)
    _places(request)
    check_tags(request.get("Tags") or [])


def check_tags(tags: list[Mapping[str, Any]]) -> None:
    """Tag keys are unique without regard to case, and `aws:` is reserved."""
    keys = [tag["Key"].lower() for tag in tags]
    if len(set(keys)) != len(keys):
        raise validation_error("Duplicate tag keys found. Please note that Tag keys are case insensitive.")
    if any(key.startswith("aws:") for key in keys):
        raise validation_error("aws: prefixed tag key names are not allowed for external use.")


def _required(request: Request) -> None:
    if request.get("ServerlessJobConfig") is not None:
        return
    missing = [
        Violation(member[0].lower() + member[1:], "null", "Member must not be null")
        for member in ("AlgorithmSpecification", "ResourceConfig", "StoppingCondition")
        if request.get(member) is None
    ]
    if missing:
        raise validation_error(describe(missing))


def _algorithm(algorithm: Request) -> None:
    image, name = algorithm.get("TrainingImage"), algorithm.get("AlgorithmName")
    if algorithm and bool(image) == bool(name):
        problem = "both" if image else "neither"
        raise validation_error(
            f"Exactly one of TrainingImage and AlgorithmName must be in AlgorithmSpecification, not {problem}."
        )
    if name and algorithm.get("MetricDefinitions"):
        raise validation_error("MetricDefinitions cannot be specified together with AlgorithmName.")
    for definition in algorithm.get("MetricDefinitions") or []:
        try:
            compiled = regex.compile(definition["Regex"])
        except (regex.error, OverflowError, RecursionError) as error:
            raise validation_error(
                f"The regular expression of metric '{definition['Name']}' is not valid: {error}."
            ) from None
        if compiled.groups == 0:
            raise validation_error(
                f"The regular expression of metric '{definition['Name']}' captures nothing: it must"
                " have a group around the number."
            )


def _resources(resources: Request, spot: bool) -> None:
    groups = resources.get("InstanceGroups")
    single = [name for name in ("InstanceType", "InstanceCount") if resources.get(name) is not None]
    keep_alive = bool(resources.get("KeepAlivePeriodInSeconds"))
    if groups and single:
        raise validation_error("InstanceType or InstanceCount cannot be specified with InstanceGroups")
    if resources.get("InstancePreferences") and (groups or single or spot):
        raise validation_error(
            "InstancePreferences cannot be specified with InstanceType, InstanceCount, InstanceGroups or managed spot"
            " training"
        )
    if groups:
        names = [group["InstanceGroupName"] for group in groups]
        if len(set(names)) != len(names):
            raise validation_error(f"Instance group names must be unique: [{', '.join(names)}]")
        if keep_alive:
            raise validation_error("KeepAlivePeriodInSeconds is not supported for heterogeneous clusters")
        _positive([(f"instanceGroups.{n}.member", group) for n, group in enumerate(groups, 1)])
    elif not resources.get("InstancePreferences"):
        missing = [
            Violation(f"resourceConfig.{name[0].lower()}{name[1:]}", "null", "Member must not be null")
            for name in ("InstanceType", "InstanceCount")
            if name not in single
        ]
        if missing:
            raise validation_error(describe(missing))
        _positive([("", resources)])
    if keep_alive and spot:
        raise validation_error("KeepAlivePeriodInSeconds is not supported with managed spot training")


def _positive(holders: list[tuple[str, Request]]) -> None:
    bad = []
    for path, holder in holders:
        if holder["InstanceCount"] < 1:
            full = ".".join(part for part in ("resourceConfig", path, "instanceCount") if part)
            text = "Member must have value greater than or equal to 1"
            bad.append(Violation(full, f"'{holder['InstanceCount']}'", text))
    if bad:
        raise validation_error(describe(bad))


def _stopping(request: Request) -> None:
    condition = request.get("StoppingCondition") or {}
    runtime, wait = condition.get("MaxRuntimeInSeconds"), condition.get("MaxWaitTimeInSeconds")
    if runtime is not None and runtime > MAX_RUNTIME_SECONDS:
        text = f"Member must have value less than or equal to {MAX_RUNTIME_SECONDS}"
        path = "stoppingCondition.maxRuntimeInSeconds"
        raise validation_error(describe([Violation(path, f"'{runtime}'", text)]))
    if not request.get("EnableManagedSpotTraining"):
        if wait is not None:
            raise validation_error(
                "Invalid MaxWaitTimeInSeconds. It is only supported when EnableManagedSpotTraining is set to true"
            )
    elif wait is None or wait < (runtime if runtime is not None else 24 * 3600):
        raise validation_error(
            "Invalid MaxWaitTimeInSeconds. It must be present and be greater than or equal to MaxRuntimeInSeconds"
        )


def _channels(request: Request) -> None:
    channels = request.get("InputDataConfig") or []
    counts = Counter(channel["ChannelName"] for channel in channels)
    doubled = sorted(name for name, count in counts.items() if count > 1)
    if doubled:
        raise validation_error(f"Channel names must be unique within a training job: [{', '.join(doubled)}]")
    job_mode = (request.get("AlgorithmSpecification") or {}).get("TrainingInputMode")
    for channel in channels:
        _channel(channel, channel.get("InputMode") or job_mode or "File")
    _channel_groups(request, channels)


def _channel(channel: Request, mode: str) -> None:
    name, source = channel["ChannelName"], channel["DataSource"]
    kinds = [kind for kind in _SOURCES if source.get(kind)]
    if len(kinds) != 1:
        raise _bad_channel(name, f"DataSource must have exactly one of {', '.join(_SOURCES)}")
    if channel.get("CompressionType") == "Gzip" and mode != "Pipe":
        raise _bad_channel(name, f"CompressionType Gzip is only supported in Pipe mode, and the channel's is {mode}")
    if channel.get("RecordWrapperType") == "RecordIO" and mode != "Pipe":
        raise _bad_channel(name, f"RecordWrapperType RecordIO is only supported in Pipe mode, not in {mode} mode")
    if kinds != ["S3DataSource"]:
        if mode != "File":
            raise _bad_channel(name, f"{kinds[0]} is only supported in File mode, and the channel's is {mode}")
        return
    objects = source["S3DataSource"]
    _need_s3(objects["S3Uri"], f"channel '{name}'")
    augmented = objects["S3DataType"] == "AugmentedManifestFile"
    if augmented and mode != "Pipe":
        raise _bad_channel(name, "S3DataType AugmentedManifestFile is only supported in Pipe mode")
    if augmented and not objects.get("AttributeNames"):
        raise _bad_channel(name, "S3DataType AugmentedManifestFile needs AttributeNames")
    if not augmented and objects.get("AttributeNames"):
        raise _bad_channel(name, "AttributeNames are only supported with S3DataType AugmentedManifestFile")
    if mode == "FastFile" and objects["S3DataType"] != "S3Prefix":
        raise _bad_channel(name, "FastFile mode is only supported with S3DataType S3Prefix")


def _channel_groups(request: Request, channels: list[Request]) -> None:
    """On a heterogeneous cluster all channels name their groups or none does."""
    groups = [g["InstanceGroupName"] for g in (request.get("ResourceConfig") or {}).get("InstanceGroups") or []]
    wanted = {
        channel["ChannelName"]: (channel["DataSource"].get("S3DataSource") or {}).get("InstanceGroupNames") or []
        for channel in channels
    }
    grouped = [name for name, names in wanted.items() if names]
    others = [name for name, names in wanted.items() if not names]
    if grouped and not groups:
        raise _bad_channel(grouped[0], "InstanceGroupNames can only be specified with ResourceConfig.InstanceGroups")
    if grouped and others:
        raise validation_error(
            f"Some channels have assigned instance groups: [{', '.join(grouped)}]"
            f" while others not: [{', '.join(others)}]"
        )
    for name in grouped:
        unknown = sorted(set(wanted[name]) - set(groups))
        if unknown:
            raise _bad_channel(name, f"unknown instance groups: [{', '.join(unknown)}]")


def _places(request: Request) -> None:
    """Where things are written: S3 locations, and absolute paths inside the container."""
    _need_s3(request["OutputDataConfig"]["S3OutputPath"], "OutputDataConfig.S3OutputPath")
    checkpoints = request.get("CheckpointConfig")
    if checkpoints:
        _need_s3(checkpoints["S3Uri"], "CheckpointConfig.S3Uri")
        path = checkpoints.get("LocalPath")
        if path is not None and (not path.startswith("/") or ".." in path.split("/") or not path.strip("/")):
            raise validation_error(
                f"CheckpointConfig.LocalPath must be an absolute path without '..', below the root: '{path}'"
            )


def _need_s3(uri: str, where: str) -> None:
    bucket = uri.removeprefix("s3://").partition("/")[0]
    if not uri.startswith("s3://") or len(bucket) < 3:
        raise validation_error(f"The S3 URI of {where} must have the form s3://bucket/prefix, not '{uri}'.")


def _bad_channel(name: str, problem: str) -> ApiError:
    return validation_error(f"Channel '{name}': {problem}.")
