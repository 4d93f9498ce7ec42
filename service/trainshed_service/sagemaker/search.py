"""Search expressions, compiled into a predicate over a job as DescribeTrainingJob shows it (with Tags).

Pure: no database, no clock. Property names are those of the service model's TrainingJob, with dots between levels;
below HyperParameters, Environment, Tags and Metrics the rest of the name is a key (`Tags.team`, `Metrics.loss`). A name
that goes through a list stands for all its elements: a positive test holds where one element passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StructureShape

from trainshed_service.wire.errors import ApiError, validation_error
from trainshed_service.wire.models import service_model

MAX_CONDITIONS = 200
"""Conditions in one expression, over all levels: a search looks at every job with each."""

Job = Mapping[str, Any]
Predicate = Callable[[Any], bool]

_NAMED_LISTS = {"Tags": ("Tags", "Key", "Value"), "Metrics": ("FinalMetricDataList", "MetricName", "Value")}
_ORDERED: dict[str, Callable[[float, float], bool]] = {
    "GreaterThan": lambda have, want: have > want,
    "GreaterThanOrEqualTo": lambda have, want: have >= want,
    "LessThan": lambda have, want: have < want,
    "LessThanOrEqualTo": lambda have, want: have <= want,
}


@dataclass(frozen=True, slots=True)
class CompiledSearch:
    matches: Predicate
    names: frozenset[str] | None
    """Only jobs with these names can match; None: any may."""


def compile_search(expression: Mapping[str, Any] | None) -> CompiledSearch:
    """Compile a SearchExpression that satisfies the service model. Raises ValidationException for what it misuses."""
    if not expression:
        return CompiledSearch(lambda job: True, None)
    if _count(expression) > MAX_CONDITIONS:
        raise validation_error(f"A search expression may have at most {MAX_CONDITIONS} conditions.")
    return _expression(expression)


def _count(expression: Mapping[str, Any]) -> int:
    nested = sum(len(group["Filters"]) for group in expression.get("NestedFilters") or [])
    below = sum(_count(part) for part in expression.get("SubExpressions") or [])
    return len(expression.get("Filters") or []) + nested + below


def _expression(expression: Mapping[str, Any]) -> CompiledSearch:
    parts = [_filter(item, _job_shape()) for item in expression.get("Filters") or []]
    parts += [_nested(group) for group in expression.get("NestedFilters") or []]
    parts += [_expression(part) for part in expression.get("SubExpressions") or []]
    if not parts:
        raise validation_error("A search expression needs Filters, NestedFilters or SubExpressions.")
    predicates = [part.matches for part in parts]
    hints = [part.names for part in parts]
    if (expression.get("Operator") or "And") == "Or":
        known = [hint for hint in hints if hint is not None]
        union = frozenset[str]().union(*known) if len(known) == len(hints) else None
        return CompiledSearch(lambda job: any(predicate(job) for predicate in predicates), union)
    names: frozenset[str] | None = None
    for hint in hints:
        if hint is not None:
            names = hint if names is None else names & hint
    return CompiledSearch(lambda job: all(predicate(job) for predicate in predicates), names)


def _nested(group: Mapping[str, Any]) -> CompiledSearch:
    """All filters must hold for one and the same element of a list."""
    path = group["NestedPropertyName"].split(".")
    shape, _ = _resolve_shape(_job_shape(), path, group["NestedPropertyName"])
    if not isinstance(shape, ListShape):
        raise validation_error(f"NestedPropertyName must name a list, and '{group['NestedPropertyName']}' does not.")
    element = shape.member
    names = [_relative(item, group["NestedPropertyName"]) for item in group["Filters"]]
    predicates = [_filter(item, element).matches for item in names]

    def matches(job: Any) -> bool:
        return any(all(predicate(item) for predicate in predicates) for item in _values(job, path))

    return CompiledSearch(matches, None)


def _relative(item: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """AWS's examples name nested properties both from the job and from the element."""
    return {**item, "Name": item["Name"].removeprefix(prefix + ".")}


def _filter(item: Mapping[str, Any], root: Shape) -> CompiledSearch:
    name, operator, value = item["Name"], item.get("Operator") or "Equals", item.get("Value")
    path = name.split(".")
    shape, path = _resolve_shape(root, path, name)
    if operator in ("Exists", "NotExists"):
        if value is not None:
            raise validation_error(f"The operator {operator} on {name} takes no Value.")
        wanted = operator == "Exists"
        return CompiledSearch(lambda job: any(True for _ in _values(job, path)) is wanted, None)
    if value is None:
        raise validation_error(f"The operator {operator} on {name} needs a Value.")
    test = _test(name, operator, value, shape)
    if operator == "NotEquals":
        return CompiledSearch(lambda job: all(test(have) for have in _values(job, path)), None)
    names = None
    if path == ["TrainingJobName"] and operator in ("Equals", "In"):
        names = frozenset([value] if operator == "Equals" else _listed(value))
    return CompiledSearch(lambda job: any(test(have) for have in _values(job, path)), names)


def _test(name: str, operator: str, value: str, shape: Shape | None) -> Predicate:
    kind = shape.type_name if shape is not None else "string"
    if operator in _ORDERED:
        return _ordered(name, operator, value, kind)
    if operator == "Contains":
        if kind not in ("string", "map", "list"):
            raise validation_error(f"The operator Contains is for text, and {name} is of type {kind}.")
        return lambda have: value in str(have)
    equal = _equality(name, value, kind) if operator in ("Equals", "NotEquals") else None
    if operator == "Equals" and equal:
        return equal
    if operator == "NotEquals" and equal:
        return lambda have: not equal(have)
    if operator == "In":
        tests = [_equality(name, part, kind) for part in _listed(value)]
        return lambda have: any(test(have) for test in tests)
    raise _unknown_operator(operator)


def _ordered(name: str, operator: str, value: str, kind: str) -> Predicate:
    hyperparameter = name.startswith("HyperParameters.")
    if kind in ("string", "boolean") and not hyperparameter:
        raise validation_error(f"The operator {operator} is not supported for {name}, which is of type {kind}.")
    want = _moment(name, value) if kind == "timestamp" else _number(value)
    if want is None:
        raise validation_error(f"The operator {operator} on {name} needs a number, not '{value}'.")
    compare = _ORDERED[operator]
    whole = hyperparameter and want.is_integer() and "." not in value

    def ordered(have: Any) -> bool:
        number = _number(have)
        if number is None:
            return False
        # AWS compares decimal hyperparameters as integers where the value asked for is one.
        return compare(math.trunc(number) if whole else number, want)

    return ordered


def _equality(name: str, value: str, kind: str) -> Predicate:
    if kind == "timestamp":
        moment = _moment(name, value)
        return lambda have: _number(have) is not None and abs(float(have) - moment) < 0.001
    if kind == "boolean":
        if value.lower() not in ("true", "false"):
            raise validation_error(f"{name} is true or false, not '{value}'.")
        return lambda have: have is (value.lower() == "true")
    if kind in ("integer", "long", "float", "double"):
        want = _number(value)
        if want is None:
            raise validation_error(f"{name} is a number, not '{value}'.")
        return lambda have: _number(have) == want
    return lambda have: have == value


def _values(job: Any, path: Sequence[str]) -> Iterator[Any]:
    """Everything that stands at `path`, through lists; nothing where it is absent."""
    if isinstance(job, list):
        for item in job:
            yield from _values(item, path)
    elif not path:
        if job is not None:
            yield job
    elif isinstance(job, Mapping):
        if path[0] in _NAMED_LISTS and len(path) == 2:
            member, key, value = _NAMED_LISTS[path[0]]
            for item in job.get(member) or []:
                if item.get(key) == path[1]:
                    yield item.get(value)
        elif path[0] in job:
            yield from _values(job[path[0]], path[1:])


def _resolve_shape(root: Shape, path: list[str], name: str) -> tuple[Shape | None, list[str]]:
    """(shape of the property, path with a key that has dots in one piece)."""
    if root.name == "TrainingJob" and path[0] in _NAMED_LISTS and len(path) > 1:
        return (_metric_shape() if path[0] == "Metrics" else None), [path[0], ".".join(path[1:])]
    shape: Shape = root
    for index, part in enumerate(path):
        while isinstance(shape, ListShape):
            shape = shape.member
        if isinstance(shape, MapShape):
            return shape.value, [*path[:index], ".".join(path[index:])]
        member = shape.members.get(part) if isinstance(shape, StructureShape) else None
        if member is None:
            raise validation_error(f"Unknown property name: '{name}'.")
        shape = member
    return shape, path


@cache
def _job_shape() -> Shape:
    return service_model("sagemaker").shape_for("TrainingJob")


@cache
def _metric_shape() -> Shape:
    return service_model("sagemaker").shape_for("MetricValue")


def _listed(value: str) -> list[str]:
    return [part.strip() for part in value.split(",")]


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _moment(name: str, value: str) -> float:
    number = _number(value)
    if number is not None:
        return number
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise validation_error(f"{name} is a time such as 2026-01-31T12:00:00Z, not '{value}'.") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _unknown_operator(operator: str) -> ApiError:
    return validation_error(f"Unknown operator: '{operator}'.")
