"""Java patterns of the service models mean the same in Python."""

from __future__ import annotations

import re

import pytest
from botocore.model import ListShape, MapShape, Shape, StructureShape

from trainshed_service import iam, sagemaker, sts
from trainshed_service.wire.models import operation_model
from trainshed_service.wire.patterns import compile_pattern


def shapes_of(shape: Shape | None, seen: dict[str, Shape]) -> dict[str, Shape]:
    """All shapes below `shape`, by name."""
    if shape is None or shape.name in seen:
        return seen
    seen[shape.name] = shape
    if isinstance(shape, StructureShape):
        for member in shape.members.values():
            shapes_of(member, seen)
    elif isinstance(shape, ListShape):
        shapes_of(shape.member, seen)
    elif isinstance(shape, MapShape):
        shapes_of(shape.key, seen)
        shapes_of(shape.value, seen)
    return seen


def patterns() -> list[str]:
    found: dict[str, Shape] = {}
    for service, operations in (
        ("sagemaker", sagemaker.OPERATIONS),
        ("sts", sts.OPERATIONS),
        ("iam", iam.OPERATIONS),
        ("logs", ["DescribeLogGroups", "DescribeLogStreams", "GetLogEvents", "FilterLogEvents"]),
        ("cloudwatch", ["GetMetricStatistics", "GetMetricData", "ListMetrics"]),
    ):
        for name in operations:
            model = operation_model(service, name)
            assert model is not None
            shapes_of(model.input_shape, found)
    return sorted({str(shape.metadata["pattern"]) for shape in found.values() if "pattern" in shape.metadata})


@pytest.mark.parametrize("java", patterns())
def test_every_pattern_of_our_operations_compiles(java: str) -> None:
    compile_pattern(java).fullmatch("")


@pytest.mark.parametrize(
    ("java", "matching", "other"),
    [
        (r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", ["a", "a--b", "0" * 63], ["", "-a", "a-", "a" * 64, "a\n", "ä"]),
        (".*", ["", "a b", "é\t"], ["\n", "a\r", "\x85", "\u2028"]),
        (r"[\S\s]*", ["", "\n\r\u2028"], []),
        (r"\d+K", ["12K"], ["\u0661K", "K"]),
        (r"\w+", ["a_1"], ["é", "-"]),
        (r"([\p{L}\p{Z}\p{N}_.:/=+\-@]*)", ["", "é ü1_.:/=+-@", "\u4e2d\u00a0\u0664"], ["!", "a\n", "\t", "#"]),
        (r"arn:[\p{Alnum}\-]+:x", ["arn:a-1:x"], ["arn::x", "arn:é:x"]),
        (r"\p{Alnum}+", ["a1"], ["_", "é"]),
        (r"[\u0009\u000A\u0020-\u00FF]+", ["\t\n aÿ"], ["\x00", "\u0100"]),
        (r"a\.b", ["a.b"], ["axb"]),
        (r"[.]", ["."], ["a"]),
    ],
)
def test_meaning(java: str, matching: list[str], other: list[str]) -> None:
    compiled = compile_pattern(java)
    assert [text for text in matching if compiled.fullmatch(text) is None] == []
    assert [text for text in other if compiled.fullmatch(text) is not None] == []


@pytest.mark.parametrize("java", ["[a[b]]", "[a-z&&[^b]]", r"\p{Nonsense}", "("])
def test_what_cannot_be_expressed_fails_loudly(java: str) -> None:
    with pytest.raises((re.error, ValueError)):
        compile_pattern(java)
