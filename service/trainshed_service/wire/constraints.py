"""Requests against botocore's service models: every constraint that a model states, in AWS's words.

A validator is compiled once per operation into nested functions, so that a check costs microseconds. It finds all
violations, not only the first, and collects members that the model does not know instead of refusing them: what becomes
of those is up to the caller. A value of the wrong JSON type is a SerializationException, as on AWS.

Invariant: whatever the request holds, `check` raises nothing but ApiError, in time linear in the size of the request.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StringShape, StructureShape

from trainshed_service.wire.errors import ApiError, serialization_error
from trainshed_service.wire.models import operation_model
from trainshed_service.wire.patterns import compile_pattern

MAX_DEPTH = 40
_SHOWN = 1024
"""Characters of a bad value that an error repeats."""

_ADMITTED: dict[str, set[str]] = {}
"""Values that an installation admits beyond the enum of a shape, by the shape's name."""

_INTEGER_BITS = {"integer": 31, "long": 63}
_ISO_TIME = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?")


@dataclass(frozen=True, slots=True)
class Violation:
    path: str
    """Where, as AWS writes it: `inputDataConfig.1.member.channelName`; "" is the request itself."""
    value: str
    """The value as the error shows it: quoted, or null."""
    constraint: str

    def __str__(self) -> str:
        return f"Value {self.value} at '{self.path}' failed to satisfy constraint: {self.constraint}"


@dataclass(slots=True)
class Report:
    violations: list[Violation] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    """Paths of unknown members in the request's own spelling: `ResourceConfig.InstanceTyp`."""

    def raise_for(self, code: str = "ValidationException") -> None:
        if self.violations:
            raise ApiError(code, describe(self.violations))


def admit(shape_name: str, values: Iterable[str]) -> None:
    """Let these values pass the enum of a shape: what an installation has and the service model does not know."""
    _ADMITTED.setdefault(shape_name, set()).update(values)


def describe(violations: list[Violation]) -> str:
    """AWS's sentence about all violations."""
    count = len(violations)
    noun = "validation error" if count == 1 else "validation errors"
    return f"{count} {noun} detected: {'; '.join(map(str, violations))}"


class Validator:
    def __init__(self, shape: Shape | None) -> None:
        self._check = _Compiler().checker(shape) if shape is not None else None
        members = shape.members if isinstance(shape, StructureShape) else {}
        self._times = tuple(name for name, member in members.items() if member.type_name == "timestamp")

    def check(self, request: object) -> Report:
        """All violations and unknown members. Raises SerializationException for values of a wrong type."""
        report = Report()
        if self._check is not None:
            self._check(request, _Place(), report)
        elif isinstance(request, dict):
            report.unknown.extend(str(name) for name in request)
        return report

    def normalize(self, request: dict[str, Any]) -> dict[str, Any]:
        """A checked request as operations get it: no null members at any depth, times in epoch seconds."""
        plain: dict[str, Any] = _without_nulls(request)
        for name in self._times:
            if isinstance(plain.get(name), str):
                plain[name] = _epoch(plain[name])
        return plain


@cache
def validator(service: str, operation: str) -> Validator:
    """The validator of an operation's request, by botocore's names."""
    model = operation_model(service, operation)
    if model is None:
        raise KeyError(f"{service} has no operation {operation}")
    return Validator(model.input_shape)


class _Place:
    """Where in the request. The words for it are only made where something is wrong there."""

    __slots__ = ("_above", "_name", "depth")

    def __init__(self, above: _Place | None = None, name: str = "", depth: int = 0) -> None:
        self._above = above
        self._name = name
        self.depth = depth

    def member(self, name: str) -> _Place:
        return _Place(self, name, self.depth + 1)

    def element(self, key: str) -> _Element:
        return _Element(self, key, self.depth + 1)

    @property
    def path(self) -> str:
        """As AWS writes it."""
        if self._above is None:
            return ""
        above, lowered = self._above.path, self._name[:1].lower() + self._name[1:]
        return f"{above}.{lowered}" if above else lowered

    @property
    def spelling(self) -> str:
        """In the request's own spelling."""
        above = self._above.spelling if self._above is not None else ""
        return f"{above}.{self._name}" if above else self._name


class _Element(_Place):
    """A position of a list or a key of a map."""

    __slots__ = ()

    @property
    def path(self) -> str:
        assert self._above is not None
        return f"{self._above.path}.{self._name}.member"

    @property
    def spelling(self) -> str:
        assert self._above is not None
        return f"{self._above.spelling}.{self._name}"


_Check = Callable[[Any, _Place, Report], None]
_ValueRules = Callable[[Any], list[str]]
"""The constraints that a scalar value breaks, in AWS's words."""


class _Compiler:
    """Shapes may contain themselves (search expressions do), so checkers are found by name when they run."""

    def __init__(self) -> None:
        self._checkers: dict[str, _Check] = {}

    def checker(self, shape: Shape) -> _Check:
        if shape.name not in self._checkers:
            self._checkers[shape.name] = lambda value, place, report: self._checkers[shape.name](value, place, report)
            self._checkers[shape.name] = self._build(shape)
        return self._checkers[shape.name]

    def _build(self, shape: Shape) -> _Check:
        if isinstance(shape, StructureShape):
            return self._structure(shape)
        if isinstance(shape, ListShape):
            return self._list(shape)
        if isinstance(shape, MapShape):
            return self._map(shape)
        return _scalar(shape)

    def _structure(self, shape: StructureShape) -> _Check:
        members = {name: (self.checker(member)) for name, member in shape.members.items()}
        required = tuple(shape.required_members)
        exclusive = bool(getattr(shape, "is_tagged_union", False))

        def check(value: Any, place: _Place, report: Report) -> None:
            if not isinstance(value, dict):
                raise _wrong_type(value, "a structure", place)
            _descend(place)
            for name in required:
                if value.get(name) is None:
                    report.violations.append(Violation(place.member(name).path, "null", "Member must not be null"))
            if exclusive:
                given = [name for name in members if value.get(name) is not None]
                if len(given) != 1:
                    text = f"Exactly one of [{', '.join(members)}] must be set"
                    report.violations.append(Violation(place.path, _shown(value), text))
            for name, item in value.items():
                found = members.get(name)
                if found is None:
                    report.unknown.append(f"{place.spelling}.{name}" if place.spelling else name)
                elif item is not None:
                    found(item, place.member(name), report)

        return check

    def _list(self, shape: ListShape) -> _Check:
        lengths = _length_rules(shape)
        rules = _rules_of(shape.member)
        each = None if rules is not None else self.checker(shape.member)

        def check(value: Any, place: _Place, report: Report) -> None:
            if not isinstance(value, list):
                raise _wrong_type(value, "a list", place)
            _descend(place)
            for text in lengths(value):
                report.violations.append(Violation(place.path, _shown(value), text))
            broken: list[str] = []
            for number, item in enumerate(value, 1):
                if item is None:
                    place_of = place.element(str(number))
                    report.violations.append(Violation(place_of.path, "null", "Member must not be null"))
                elif each is not None:
                    each(item, place.element(str(number)), report)
                elif rules is not None:
                    _check_type(shape.member, item, place.element(str(number)))
                    broken = broken or rules(item)
            if broken:
                text = f"Member must satisfy constraint: [{', '.join(broken)}]"
                report.violations.append(Violation(place.path, _shown(value), text))

        return check

    def _map(self, shape: MapShape) -> _Check:
        lengths = _length_rules(shape)
        key_rules = _rules_of(shape.key) or (lambda _: [])
        value_rules = _rules_of(shape.value)
        each = None if value_rules is not None else self.checker(shape.value)

        def check(value: Any, place: _Place, report: Report) -> None:
            if not isinstance(value, dict):
                raise _wrong_type(value, "a map", place)
            _descend(place)
            texts = lengths(value)
            bad_keys: list[str] = []
            bad_values: list[str] = []
            for key, item in value.items():
                bad_keys = bad_keys or key_rules(key)
                if item is None:
                    inner = place.element(key[:100])
                    report.violations.append(Violation(inner.path, "null", "Member must not be null"))
                elif each is not None:
                    each(item, place.element(key[:100]), report)
                elif value_rules is not None:
                    _check_type(shape.value, item, place.element(key[:100]))
                    bad_values = bad_values or value_rules(item)
            if bad_keys:
                texts = [*texts, f"Map keys must satisfy constraint: [{', '.join(bad_keys)}]"]
            if bad_values:
                texts = [*texts, f"Map value must satisfy constraint: [{', '.join(bad_values)}]"]
            for text in texts:
                report.violations.append(Violation(place.path, _shown(value), text))

        return check


def _scalar(shape: Shape) -> _Check:
    rules = _rules_of(shape)
    assert rules is not None

    def check(value: Any, place: _Place, report: Report) -> None:
        _check_type(shape, value, place)
        for text in rules(value):
            report.violations.append(Violation(place.path, _shown(value), text))

    return check


def _rules_of(shape: Shape) -> _ValueRules | None:
    """The constraints of a scalar; None for shapes that hold others."""
    if isinstance(shape, (StructureShape, ListShape, MapShape)):
        return None
    if isinstance(shape, StringShape) or shape.type_name in ("string", "blob", "character"):
        return _string_rules(shape)
    if shape.type_name in ("integer", "long", "float", "double"):
        return _range_rules(shape)
    return lambda _: []


def _string_rules(shape: Shape) -> _ValueRules:
    enum = tuple(shape.enum) if isinstance(shape, StringShape) else ()
    pattern = shape.metadata.get("pattern")
    compiled = compile_pattern(pattern) if pattern else None
    lengths = _length_rules(shape)
    longest = shape.metadata.get("max")
    enum_text = f"Member must satisfy enum value set: [{', '.join(enum)}]"

    def rules(value: str) -> list[str]:
        broken = lengths(value)
        if enum and value not in enum and value not in _ADMITTED.get(shape.name, ()):
            broken.append(enum_text)
        # A value far beyond the longest allowed is refused by its length alone: patterns cost more than linear time.
        matchable = longest is None or len(value) <= 2 * longest
        if compiled is not None and matchable and compiled.fullmatch(value) is None:
            broken.append(f"Member must satisfy regular expression pattern: {pattern}")
        if "\0" in value:
            broken.append("Member must not contain the character NUL")
        return broken

    return rules


def _length_rules(shape: Shape) -> _ValueRules:
    shortest, longest = shape.metadata.get("min"), shape.metadata.get("max")

    def rules(value: Any) -> list[str]:
        broken = []
        if longest is not None and len(value) > longest:
            broken.append(f"Member must have length less than or equal to {longest}")
        if shortest is not None and len(value) < shortest:
            broken.append(f"Member must have length greater than or equal to {shortest}")
        return broken

    return rules


def _range_rules(shape: Shape) -> _ValueRules:
    lowest, highest = shape.metadata.get("min"), shape.metadata.get("max")

    def rules(value: Any) -> list[str]:
        broken = []
        if highest is not None and value > highest:
            broken.append(f"Member must have value less than or equal to {highest}")
        if lowest is not None and value < lowest:
            broken.append(f"Member must have value greater than or equal to {lowest}")
        return broken

    return rules


def _check_type(shape: Shape, value: Any, place: _Place) -> None:
    kind = shape.type_name
    if kind in _INTEGER_BITS:
        if not isinstance(value, int) or isinstance(value, bool):
            raise _wrong_type(value, "an integer", place)
        if not -(1 << _INTEGER_BITS[kind]) <= value < 1 << _INTEGER_BITS[kind]:
            raise serialization_error(f"The number at '{place.path}' is out of the range of type {kind}.")
    elif kind in ("float", "double"):
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
            raise _wrong_type(value, "a number", place)
    elif kind == "boolean":
        if not isinstance(value, bool):
            raise _wrong_type(value, "a boolean", place)
    elif kind == "timestamp":
        _check_time(value, place)
    elif not isinstance(value, str):
        raise _wrong_type(value, "a string", place)


def _check_time(value: Any, place: _Place) -> None:
    """Epoch seconds or ISO 8601."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not -62_135_596_800 <= value <= 253_402_300_799:
            raise serialization_error(f"The time at '{place.path}' is not between the years 1 and 9999.")
    elif not isinstance(value, str) or not _is_time(value):
        raise _wrong_type(value, "a time (epoch seconds)", place)


def _is_time(value: str) -> bool:
    if len(value) > 64 or not _ISO_TIME.fullmatch(value):
        return False
    try:
        _epoch(value)
    except (ValueError, OverflowError):
        return False
    return True


def _epoch(text: str) -> float:
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _descend(place: _Place) -> None:
    if place.depth > MAX_DEPTH:
        raise serialization_error(f"The request is nested too deeply (more than {MAX_DEPTH} levels).")


_JSON_KINDS: dict[type, str] = {
    str: "STRING_VALUE",
    bool: "BOOLEAN_VALUE",
    int: "NUMBER_VALUE",
    float: "NUMBER_VALUE",
    list: "START_ARRAY",
    dict: "START_OBJECT",
}


def _wrong_type(value: Any, wanted: str, place: _Place) -> ApiError:
    kind = _JSON_KINDS.get(type(value), "NULL_VALUE")
    where = f" at '{place.path[:300]}'" if place.path else ""
    return serialization_error(f"{kind} can not be converted to {wanted}{where}")


def _shown(value: Any) -> str:
    """A value in an error: quoted, lists and maps as AWS prints them, cut where it is long."""
    text = _plain(value)
    return f"'{text if len(text) <= _SHOWN else text[:_SHOWN] + '…'}'"


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return f"[{', '.join(_plain(item) for item in value[:100])}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={_plain(item)}" for key, item in list(value.items())[:100]) + "}"
    return json.dumps(value)
