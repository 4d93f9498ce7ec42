"""The whole validation of a SageMaker request, in one place for the AWS wire, REST and the command line.

Order: service model (all violations at once), unknown members, cross-field rules, what we do not provide. A request
that passes is stored and run; everything else raises ApiError and nothing is stored.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StructureShape

from trainshed_service.providers import known_type, load_types
from trainshed_service.sagemaker import rules, support
from trainshed_service.sagemaker.distribution import check_degree_of
from trainshed_service.wire import constraints
from trainshed_service.wire.errors import validation_error
from trainshed_service.wire.models import operation_model

TYPES_FILE = "instance_types.json"
"""In the home: instance types of this installation beyond those that we know."""

_NAMED = 20
"""Unknown members that an error or the notices name."""


def validate(operation: str, request: Mapping[str, Any], *, strict: bool = True) -> list[str]:
    """Check a request of any SageMaker operation from nothing. Returns notices; raises ApiError.

    `strict`: unknown members are refused (REST); else each becomes a notice (the AWS wire, where newer clients call).
    """
    report = constraints.validator("sagemaker", operation).check(request)
    report.raise_for()
    return accept(operation, request, report.unknown, strict=strict)


def accept(operation: str, request: Mapping[str, Any], unknown: Sequence[str], *, strict: bool) -> list[str]:
    """The rest of `validate`, for a request that satisfies the model."""
    if unknown and strict:
        raise validation_error("Unknown members in the request: " + "; ".join(_unknown(operation, unknown)) + ".")
    found = [f"An unknown member was ignored: {text}." for text in _unknown(operation, unknown)]
    if operation == "CreateTrainingJob":
        rules.check_create(request)
        support.refuse_unsupported(request)
        _instance_type(request)
        check_degree_of(request)
        found += support.notices(request)
    elif operation == "AddTags":
        rules.check_tags(request["Tags"])
    return found


def load_instance_types(home: Path) -> list[str]:
    """Know the instance types that this installation adds; their names. ValueError for a bad file."""
    added = load_types(home / TYPES_FILE)
    constraints.admit("TrainingInstanceType", added)
    return added


def _instance_type(request: Mapping[str, Any]) -> None:
    resources = request["ResourceConfig"]
    for holder in resources.get("InstanceGroups") or [resources]:
        if known_type(holder["InstanceType"]) is None:
            raise validation_error(
                f"The instance type {holder['InstanceType']} is not known to this installation."
                f" Add it to {TYPES_FILE} in the home, with its vCPUs, memory and accelerators."
            )


def _unknown(operation: str, paths: Sequence[str]) -> list[str]:
    """Each unknown member, with the known one that it may have been meant to be."""
    texts = []
    for path in paths[:_NAMED]:
        shown = path if len(path) <= 200 else path[:200] + "…"
        close = difflib.get_close_matches(path.rsplit(".", 1)[-1], _siblings(operation, path), n=1, cutoff=0.6)
        texts.append(f"'{shown}'" + (f" (did you mean '{close[0]}'?)" if close else ""))
    if len(paths) > _NAMED:
        texts.append(f"and {len(paths) - _NAMED} more")
    return texts


def _siblings(operation: str, path: str) -> list[str]:
    """The members that the model knows at the place of `path`."""
    model = operation_model("sagemaker", operation)
    shape: Shape | None = model.input_shape if model else None
    for part in path.split(".")[:-1]:
        if isinstance(shape, StructureShape):
            shape = shape.members.get(part)
        elif isinstance(shape, ListShape):
            shape = shape.member
        elif isinstance(shape, MapShape):
            shape = shape.value
    return list(shape.members) if isinstance(shape, StructureShape) else []
