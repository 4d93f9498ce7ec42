"""What we do with each member of CreateTrainingJob that is more than data: one table, three kinds of rows.

NOTED members are accepted, kept and shown by describe, but change nothing: each gives the job a notice that says so.
REFUSED ones would silently give another job than the one asked for, so the request is refused in words. All that has
no row is acted on. The job's notices, the refusals and the lists in docs/api.md come from here (a test keeps the
document in step).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from trainshed_service.wire.errors import ApiError, validation_error

Request = Mapping[str, Any]


class Treatment(StrEnum):
    NOTED = "accepted, not acted on"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Row:
    member: str
    """Path in the request; `[]` stands for each element of a list."""
    treatment: Treatment
    text: str
    """Follows the member's name: what it does not do (noted), or why it is refused and what to do instead."""
    applies: Callable[[Any], bool] = lambda value: value not in (None, False, 0, "", [], {})
    """Whether a value of the member means anything; by default every value that is not empty, false or zero."""
    value: str | None = None
    """The value that `applies` looks for, as the document names it."""


def _noted(member: str, text: str, **more: Any) -> Row:
    return Row(member, Treatment.NOTED, text, **more)


def _refused(member: str, text: str, value: str | None = None) -> Row:
    if value is None:
        return Row(member, Treatment.REFUSED, text)
    return Row(member, Treatment.REFUSED, text, applies=lambda given: given == value, value=value)


_MODES = {
    "Pipe": "the Pipe input mode is not provided by this version. Use File, which copies the channel to the instance.",
    "FastFile": "the FastFile input mode is not provided by this version. Use File, which copies the channel.",
}

TABLE: tuple[Row, ...] = (
    # -- refused: the job would be another one ------------------------------------------------------------------
    *(_refused("AlgorithmSpecification.TrainingInputMode", text, mode) for mode, text in _MODES.items()),
    *(_refused("InputDataConfig[].InputMode", text, mode) for mode, text in _MODES.items()),
    _refused(
        "InputDataConfig[].DataSource.FileSystemDataSource",
        "file systems (EFS, FSx for Lustre) cannot be mounted by this version. Use an S3DataSource.",
    ),
    _refused("InputDataConfig[].DataSource.DatasetSource", "there is no model hub here. Use an S3DataSource."),
    _refused("InputDataConfig[].DataSource.S3DataSource.HubAccessConfig", "there is no model hub here."),
    _refused(
        "InputDataConfig[].DataSource.S3DataSource.S3DataType",
        "this data type is not provided. Use S3Prefix or ManifestFile.",
        "Converse",
    ),
    _refused(
        "ResourceConfig.InstancePreferences",
        "a list of preferred instance types is not provided. Use InstanceType and InstanceCount.",
    ),
    _refused(
        "EnableManagedSpotTraining",
        "managed spot training is not provided by this version. Leave it out, together with MaxWaitTimeInSeconds.",
    ),
    _refused("ServerlessJobConfig", "serverless training jobs are not provided. Use a training image."),
    _refused(
        "AlgorithmSpecification.AlgorithmName",
        "algorithm resources are not provided. Name a TrainingImage instead.",
    ),
    # -- accepted, not acted on ----------------------------------------------------------------------------------
    _noted("ResourceConfig.VolumeSizeInGB", "the disk space of an instance is not limited"),
    _noted("ResourceConfig.VolumeKmsKeyId", "volumes are not encrypted with a KMS key"),
    _noted("ResourceConfig.TrainingPlanArn", "there are no reserved training plans; the job waits in the queue"),
    _noted("ResourceConfig.InstancePlacementConfig", "there are no UltraServers; instances are placed where they fit"),
    _noted("ResourceConfig.SelectedInstanceType", "this is part of a response"),
    _noted("ResourceConfig.SelectedInstanceCount", "this is part of a response"),
    _noted("OutputDataConfig.KmsKeyId", "artifacts are encrypted by the object store's own key, if at all"),
    _noted("VpcConfig", "the job runs in the network of this installation"),
    _noted("EnableInterContainerTrafficEncryption", "traffic between the instances of a job is not encrypted"),
    _noted("AlgorithmSpecification.EnableSageMakerMetricsTimeSeries", "metrics are always kept as time series"),
    _noted("AlgorithmSpecification.TrainingImageConfig", "images are looked up in this installation's own table"),
    _noted("InputDataConfig[].ShuffleConfig", "files are copied whole, their order has no meaning"),
    _noted("InputDataConfig[].DataSource.S3DataSource.ModelAccessConfig", "no licence is asked for"),
    _noted("DebugHookConfig", "Debugger is not provided"),
    _noted("DebugRuleConfigurations", "Debugger is not provided"),
    _noted("TensorBoardOutputConfig", "nothing is uploaded for TensorBoard; write to the checkpoint or output folder"),
    _noted("ProfilerConfig", "Profiler is not provided; CPU and memory are sampled for every job"),
    _noted("ProfilerRuleConfigurations", "Profiler is not provided"),
    _noted("ExperimentConfig", "experiments are not provided; the names are kept with the job"),
    _noted("RemoteDebugConfig", "there is no remote shell"),
    _noted("InfraCheckConfig", "nodes are watched by their agents; no further check runs before the job"),
    _noted("SessionChainingConfig", "session tags are not provided"),
    _noted("MlflowConfig", "no MLflow server is reported to; set MLFLOW_TRACKING_URI in Environment instead"),
    _noted("ModelPackageConfig", "no model package is registered"),
)


_BY_TREATMENT = {
    treatment: [(re.split(r"[.\[]", row.member)[0], row) for row in TABLE if row.treatment is treatment]
    for treatment in Treatment
}
"""Each row with the member of the request that it is below: most requests have few of them."""


def refuse_unsupported(request: Request) -> None:
    """Raise ValidationException for the first member of the request that we do not provide."""
    for head, row in _BY_TREATMENT[Treatment.REFUSED]:
        if head in request:
            for place, value in _find(request, row.member):
                if row.applies(value):
                    shown = f" {row.value}" if row.value else ""
                    raise _refusal(place, shown, row.text)


def notices(request: Request) -> list[str]:
    """One sentence for each member that was accepted and will not be acted on."""
    found: list[str] = []
    for head, row in _BY_TREATMENT[Treatment.NOTED]:
        if head in request:
            places = [place for place, value in _find(request, row.member) if row.applies(value)]
            if places:
                found.append(f"{row.member} is accepted but not acted on: {row.text}.")
    return found


def _refusal(place: str, shown: str, text: str) -> ApiError:
    return validation_error(f"{place}{shown} is not supported: {text}")


def _find(request: Any, member: str) -> Iterator[tuple[str, Any]]:
    """(path as it stands in this request, value) of each place of `member` that is there."""
    head, _, rest = member.partition(".")
    name = head.removesuffix("[]")
    if not isinstance(request, Mapping) or request.get(name) is None:
        return
    value = request[name]
    elements = [(f"{name}[{index}]", item) for index, item in enumerate(value)] if head != name else [(name, value)]
    for place, element in elements:
        if not rest:
            yield place, element
        else:
            for below, found in _find(element, rest):
                yield f"{place}.{below}", found
