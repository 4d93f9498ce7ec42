"""What a CreateTrainingJob's distribution asks of its world, checked before the job is stored.

Only what can be known from the request alone: a sharded-data-parallel degree has to divide instances × processes per
host. The same rule, with the same words, holds when the script calls smp.init; what hyperparameters hold besides is
the script's business, so anything that cannot be read here is left to it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trainshed_runtime.degrees import KEY, InvalidDegree, check_degree
from trainshed_service.providers import known_type
from trainshed_service.wire.errors import validation_error

_PARAMETERS = "mp_parameters"
_MPI = "sagemaker_mpi_enabled"
_MPI_PROCESSES = "sagemaker_mpi_num_of_processes_per_host"
_GROUPS = "sagemaker_distribution_instance_groups"


def check_degree_of(request: Mapping[str, Any]) -> None:
    """ValidationException with degrees that would do, where the asked one does not divide the job's ranks."""
    hyperparameters = request.get("HyperParameters") or {}
    parameters = _decoded(hyperparameters.get(_PARAMETERS))
    if not isinstance(parameters, Mapping) or KEY not in parameters:
        return
    if str(_decoded(hyperparameters.get(_MPI))).lower() not in ("true", "1"):
        return  # the script runs once per host, and smp.init says that there are no ranks
    world = _world(request, hyperparameters)
    if world is None:
        return
    instances, processes = world
    described = f"{_many(instances, 'instance')} of {_many(processes, 'process', 'processes')}"
    try:
        check_degree(_number(parameters[KEY]), instances * processes, processes, described)
    except InvalidDegree as error:
        raise validation_error(f"HyperParameters.{_PARAMETERS}: {error}") from None


def _world(request: Mapping[str, Any], hyperparameters: Mapping[str, str]) -> tuple[int, int] | None:
    """(instances that take part, processes on each); None where the groups are not those of the job or differ."""
    resources = request["ResourceConfig"]
    groups = resources.get("InstanceGroups") or [resources]
    named = _decoded(hyperparameters.get(_GROUPS))
    if isinstance(named, list) and named and resources.get("InstanceGroups"):
        groups = [group for group in groups if group["InstanceGroupName"] in named]
    asked = _number(_decoded(hyperparameters.get(_MPI_PROCESSES)))
    if isinstance(asked, int) and asked > 0:
        each = {asked}
    else:
        types = [known_type(group["InstanceType"]) for group in groups]
        each = {max(known.accelerators, 1) if known is not None else 1 for known in types}
    if len(each) != 1:
        return None
    return sum(group["InstanceCount"] for group in groups), each.pop()


def _decoded(value: str | None) -> Any:
    """A hyperparameter as the SDKs send it: JSON, JSON in a JSON string, or the bare text."""
    decoded: Any = value
    for _ in range(2):
        if not isinstance(decoded, str):
            break
        try:
            decoded = json.loads(decoded)
        except ValueError:
            break
        except RecursionError:
            return None
    return decoded


def _number(value: Any) -> Any:
    """Digits in a string as the number that they are; everything else as it is."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10 else value


def _many(count: int, one: str, more: str | None = None) -> str:
    return f"{count} {one if count == 1 else more or one + 's'}"
