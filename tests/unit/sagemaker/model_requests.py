"""Requests made from the service model: valid ones, and for each constraint one that breaks it and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StringShape, StructureShape

from trainshed_service.wire.models import operation_model
from trainshed_service.wire.patterns import compile_pattern

_ACCOUNT = "arn:aws:sagemaker:us-east-1:123456789012"
_HUB = f"{_ACCOUNT}:hub-content/hub"
_SAMPLES = (
    "a",
    "a" * 11,
    "s3://bucket/key",
    "arn:aws:iam::123456789012:role/SomeRole",
    "fs-0123456789",
    "12K",
    "arn:aws:lambda:us-east-1:123456789012:function:f",
    f"{_ACCOUNT}:training-job/a-job",
    f"{_ACCOUNT}:training-plan/a-plan",
    f"{_ACCOUNT}:mlflow-tracking-server/a",
    f"{_ACCOUNT}:model-package-group/a",
    f"{_ACCOUNT}:model-package/a/1",
    f"{_HUB}/DataSet/data",
    f"{_HUB}/Model/model",
)
_MISFITS = ("!", "\n", "a b", "é!", " ", "a\n", "-", "x" * 20, "x" * 60)
_SCALARS: dict[str, Any] = {"boolean": True, "timestamp": 1_800_000_000, "float": 1.5, "double": 1.5}

Build = Callable[[Any], dict[str, Any]]
"""Puts a value at a place of an otherwise valid request."""


@dataclass(frozen=True)
class Breach:
    """A request that breaks one constraint: the path and the words that the error must have."""

    name: str
    request: dict[str, Any]
    path: str
    words: str


def fits(shape: Shape, text: str) -> bool:
    limits = shape.metadata
    if not limits.get("min", 0) <= len(text) <= limits.get("max", 1 << 30):
        return False
    return "pattern" not in limits or compile_pattern(limits["pattern"]).fullmatch(text) is not None


def valid(shape: Shape) -> Any:
    """A small valid value: required members only, lists as short as allowed."""
    if isinstance(shape, StructureShape):
        return {name: valid(shape.members[name]) for name in shape.required_members}
    if isinstance(shape, ListShape):
        return [valid(shape.member)] * max(1, shape.metadata.get("min", 0))
    if isinstance(shape, MapShape):
        return {valid(shape.key): valid(shape.value)}
    if isinstance(shape, StringShape) and shape.enum:
        return shape.enum[0]
    if shape.type_name == "string":
        found = next((text for text in _SAMPLES if fits(shape, text)), None)
        assert found is not None, f"add a sample for {shape.name}: {dict(shape.metadata)}"
        return found
    if shape.type_name in ("integer", "long"):
        return max(1, shape.metadata.get("min", 1))
    return _SCALARS[shape.type_name]


def input_shape(operation: str) -> StructureShape:
    model = operation_model("sagemaker", operation)
    assert model is not None and isinstance(model.input_shape, StructureShape)
    return model.input_shape


def breaches(operation: str) -> Iterator[Breach]:
    """One request for each constraint of the operation's model."""
    shape = input_shape(operation)
    yield from _structure(shape, "", lambda value: value, ())


def wrong_types(operation: str) -> Iterator[Breach]:
    """One request for each place, with a value of another type there."""
    shape = input_shape(operation)
    for path, inner, build in _places(shape, "", lambda value: value, ()):
        other: Any = 5 if inner.type_name == "string" else "text"
        yield Breach(f"{path}:type", build(other), path, "can not be converted to")


def _lower(path: str, name: str) -> str:
    lowered = name[:1].lower() + name[1:]
    return f"{path}.{lowered}" if path else lowered


def _into(outer: Build, holder: StructureShape, name: str) -> Build:
    return lambda value: outer({**valid(holder), name: value})


def _places(
    shape: StructureShape, path: str, outer: Build, above: tuple[str, ...]
) -> Iterator[tuple[str, Shape, Build]]:
    """Every member below `shape` that is reached through structures and lists of them."""
    if shape.name in above:
        return
    for name, member in shape.members.items():
        build, place = _into(outer, shape, name), _lower(path, name)
        yield place, member, build
        if isinstance(member, StructureShape):
            yield from _places(member, place, build, (*above, shape.name))
        elif isinstance(member, ListShape) and isinstance(member.member, StructureShape):
            as_list: Build = lambda value, build=build: build([value])  # noqa: E731
            yield from _places(member.member, f"{place}.1.member", as_list, (*above, shape.name))


def _structure(shape: StructureShape, path: str, outer: Build, above: tuple[str, ...]) -> Iterator[Breach]:
    yield from _missing(shape, path, outer)
    for place, member, build in _places(shape, path, outer, above):
        if isinstance(member, StructureShape):
            yield from _missing(member, place, build)
        elif isinstance(member, ListShape):
            yield from _list(member, place, build)
        elif isinstance(member, MapShape):
            yield from _map(member, place, build)
        else:
            for label, value, words in _scalars(member):
                yield Breach(f"{place}:{label}", build(value), place, words)


def _missing(shape: StructureShape, path: str, build: Build) -> Iterator[Breach]:
    for name in shape.required_members:
        whole = valid(shape)
        del whole[name]
        place = _lower(path, name)
        yield Breach(f"{place}:required", build(whole), place, "Member must not be null")


def _list(shape: ListShape, place: str, build: Build) -> Iterator[Breach]:
    element, limits = valid(shape.member), shape.metadata
    if limits.get("min", 0) > 0:
        words = f"Member must have length greater than or equal to {limits['min']}"
        yield Breach(f"{place}:min", build([element] * (limits["min"] - 1)), place, words)
    if "max" in limits:
        words = f"Member must have length less than or equal to {limits['max']}"
        yield Breach(f"{place}:max", build([element] * (limits["max"] + 1)), place, words)
    if isinstance(shape.member, StructureShape):
        first = f"{place}.1.member"
        yield from _missing(shape.member, first, lambda value: build([value]))
    else:
        for label, value, words in _scalars(shape.member):
            count = max(1, limits.get("min", 0))
            yield Breach(f"{place}:member {label}", build([value] * count), place, f"constraint: [{words}")


def _map(shape: MapShape, place: str, build: Build) -> Iterator[Breach]:
    key, value, limits = valid(shape.key), valid(shape.value), shape.metadata
    if "max" in limits:
        many = {f"{key}{number}": value for number in range(limits["max"] + 1)}
        words = f"Member must have length less than or equal to {limits['max']}"
        yield Breach(f"{place}:max", build(many), place, words)
    for label, bad, words in _scalars(shape.key):
        yield Breach(f"{place}:key {label}", build({bad: value}), place, f"Map keys must satisfy constraint: [{words}")
    for label, bad, words in _scalars(shape.value):
        yield Breach(f"{place}:value {label}", build({key: bad}), place, f"Map value must satisfy constraint: [{words}")


def _scalars(shape: Shape) -> Iterator[tuple[str, Any, str]]:
    """(label, value, words of the error) for each constraint of a scalar."""
    limits = shape.metadata
    if shape.type_name == "string":
        if isinstance(shape, StringShape) and shape.enum:
            yield "enum", "no-such-value", f"Member must satisfy enum value set: [{', '.join(shape.enum)}]"
        if limits.get("min", 0) > 0:
            short = valid(shape)[: limits["min"] - 1]
            yield "min", short, f"Member must have length greater than or equal to {limits['min']}"
        if "max" in limits:
            long = valid(shape) + "a" * (limits["max"] + 1 - len(valid(shape)))
            yield "max", long, f"Member must have length less than or equal to {limits['max']}"
        misfit = next((text for text in _MISFITS if _breaks_pattern_only(shape, text)), None)
        if misfit is not None:
            yield "pattern", misfit, f"Member must satisfy regular expression pattern: {limits['pattern']}"
    elif shape.type_name in ("integer", "long"):
        if "min" in limits:
            yield "min", limits["min"] - 1, f"Member must have value greater than or equal to {limits['min']}"
        if "max" in limits:
            yield "max", limits["max"] + 1, f"Member must have value less than or equal to {limits['max']}"


def _breaks_pattern_only(shape: Shape, text: str) -> bool:
    limits = shape.metadata
    if "pattern" not in limits or not limits.get("min", 0) <= len(text) <= limits.get("max", 1 << 30):
        return False
    return compile_pattern(limits["pattern"]).fullmatch(text) is None
