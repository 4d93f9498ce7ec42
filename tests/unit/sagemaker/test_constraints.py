"""Each constraint of the service model, one broken at a time, against what our validation says."""

from __future__ import annotations

import time

import pytest
from botocore.model import ListShape, MapShape, Shape, StructureShape

from tests.unit.sagemaker.model_requests import Breach, breaches, input_shape, valid, wrong_types
from trainshed_service.sagemaker import OPERATIONS
from trainshed_service.wire.constraints import MAX_DEPTH, validator
from trainshed_service.wire.errors import ApiError


def check(operation: str, request: object) -> list[str]:
    return [str(violation) for violation in validator("sagemaker", operation).check(request).violations]


def assert_names(operation: str, breach: Breach) -> None:
    report = validator("sagemaker", operation).check(breach.request)
    at_place = [violation for violation in report.violations if violation.path == breach.path]
    assert any(breach.words in violation.constraint for violation in at_place), report
    assert at_place == report.violations, "nothing else is wrong with the request"
    with pytest.raises(ApiError) as caught:
        report.raise_for()
    assert caught.value.code == "ValidationException"
    count = len(report.violations)
    assert caught.value.message.startswith(f"{count} validation error{'s' * (count > 1)} detected: Value ")
    assert f" at '{breach.path}' failed to satisfy constraint: " in caught.value.message


CREATE = list(breaches("CreateTrainingJob"))


@pytest.mark.parametrize("breach", CREATE, ids=[breach.name for breach in CREATE])
def test_create_training_job(breach: Breach) -> None:
    assert_names("CreateTrainingJob", breach)


@pytest.mark.parametrize("operation", sorted(set(OPERATIONS) - {"CreateTrainingJob"}))
def test_other_operations(operation: str) -> None:
    found = list(breaches(operation))
    assert found
    for breach in found:
        assert_names(operation, breach)


def test_no_constraint_of_the_model_is_left_out() -> None:
    """Counted from the model by itself: required members, patterns, enums and limits that a test above breaks."""
    broken = {breach.name for breach in CREATE}
    expected: set[str] = set()

    def walk(shape: Shape, path: str) -> None:
        if isinstance(shape, StructureShape):
            for name in shape.required_members:
                expected.add(f"{path}.{name[0].lower()}{name[1:]}:required".lstrip("."))
            for name, member in shape.members.items():
                walk(member, f"{path}.{name[0].lower()}{name[1:]}".lstrip("."))
            return
        limits = shape.metadata
        label = f"{path}:"
        if isinstance(shape, ListShape):
            if isinstance(shape.member, StructureShape):
                walk(shape.member, f"{path}.1.member")
            elif "pattern" in shape.member.metadata and shape.member.metadata["pattern"] != ".*":
                expected.add(f"{path}:member pattern")
        elif isinstance(shape, MapShape):
            expected.update(f"{path}:key {limit}" for limit in ("max",) if limit in shape.key.metadata)
            expected.update(f"{path}:value {limit}" for limit in ("max",) if limit in shape.value.metadata)
        elif getattr(shape, "enum", None):
            expected.add(label + "enum")
        elif limits.get("pattern", ".*") not in (".*", ".+", r"[\S\s]*"):
            expected.add(label + "pattern")
        if "max" in limits:
            expected.add(label + "max")
        minimum = limits.get("min", 0)
        if minimum > 0 or (shape.type_name in ("integer", "long") and "min" in limits):
            expected.add(label + "min")

    walk(input_shape("CreateTrainingJob"), "")
    assert expected - broken == set()
    assert len(expected) > 200


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_values_of_another_type(operation: str) -> None:
    for breach in wrong_types(operation):
        with pytest.raises(ApiError) as caught:
            check(operation, breach.request)
        assert caught.value.code == "SerializationException", breach
        assert f"at '{breach.path}'" in caught.value.message


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_small_valid_requests_pass(operation: str) -> None:
    assert check(operation, valid(input_shape(operation))) == []


def test_all_violations_are_told_at_once() -> None:
    request = {"TrainingJobName": "a b", "RoleArn": "r" * 20, "OutputDataConfig": {}}
    with pytest.raises(ApiError) as caught:
        validator("sagemaker", "CreateTrainingJob").check(request).raise_for()
    assert caught.value.message == (
        "3 validation errors detected: Value 'a b' at 'trainingJobName' failed to satisfy constraint: Member must"
        " satisfy regular expression pattern: [a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}; Value 'rrrrrrrrrrrrrrrrrrrr' at"
        " 'roleArn' failed to satisfy constraint: Member must satisfy regular expression pattern:"
        r" arn:aws[a-z\-]*:iam::\d{12}:role/?[a-zA-Z_0-9+=,.@\-_/]+; Value null at 'outputDataConfig.s3OutputPath'"
        " failed to satisfy constraint: Member must not be null"
    )


def test_nulls_are_absent_members() -> None:
    request = {**valid(input_shape("CreateTrainingJob")), "Tags": None, "VpcConfig": None}
    assert check("CreateTrainingJob", request) == []
    normal = validator("sagemaker", "CreateTrainingJob").normalize(request)
    assert "Tags" not in normal and "VpcConfig" not in normal
    assert check("AddTags", {"ResourceArn": "arn:aws:sagemaker:r:123456789012:x", "Tags": [None]}) == [
        "Value null at 'tags.1.member' failed to satisfy constraint: Member must not be null"
    ]


def test_unknown_members_are_collected_by_path() -> None:
    request = {
        **valid(input_shape("CreateTrainingJob")),
        "Foo": None,
        "ResourceConfig": {"InstanceTyp": "x"},
        "InputDataConfig": [{**valid(input_shape("CreateTrainingJob").members["InputDataConfig"].member), "Bar": {}}],
    }
    report = validator("sagemaker", "CreateTrainingJob").check(request)
    assert report.violations == []
    assert report.unknown == ["Foo", "ResourceConfig.InstanceTyp", "InputDataConfig.1.Bar"]


@pytest.mark.parametrize(
    ("number", "fine"),
    [(2**31 - 1, True), (2**31, False), (10**40, False), (True, False), (1.0, False), (-(2**40), False)],
)
def test_integers(number: object, fine: bool) -> None:
    request = {"ResourceConfig": {"InstanceCount": number}, **valid(input_shape("CreateTrainingJob"))}
    if fine:
        assert check("CreateTrainingJob", request) == []
    else:
        with pytest.raises(ApiError) as caught:
            check("CreateTrainingJob", request)
        assert caught.value.code == "SerializationException"


@pytest.mark.parametrize(
    "moment", [0, 1_800_000_000.5, "2027-01-15T08:00:00Z", "2027-01-15", "2027-01-15T08:00:00.123+01:00"]
)
def test_times(moment: object) -> None:
    assert check("ListTrainingJobs", {"CreationTimeAfter": moment}) == []
    normal = validator("sagemaker", "ListTrainingJobs").normalize({"CreationTimeAfter": moment})
    assert isinstance(normal["CreationTimeAfter"], (int, float))


@pytest.mark.parametrize("moment", ["soon", "2027-13-45", True, 1e300, [], "2027-01-15T25:00:00Z", "9" * 100])
def test_no_times(moment: object) -> None:
    with pytest.raises(ApiError):
        check("ListTrainingJobs", {"CreationTimeAfter": moment})


def test_nul_characters_are_refused() -> None:
    request = {**valid(input_shape("CreateTrainingJob")), "Environment": {"A": "b\0c"}}
    assert "Member must not contain the character NUL" in check("CreateTrainingJob", request)[0]


def test_nesting_is_limited() -> None:
    expression: dict[str, object] = {"Filters": [{"Name": "TrainingJobName", "Value": "a"}]}
    for _ in range(MAX_DEPTH):
        expression = {"SubExpressions": [expression]}
    with pytest.raises(ApiError, match="nested too deeply"):
        check("Search", {"Resource": "TrainingJob", "SearchExpression": expression})


def test_long_values_are_cut_and_cost_little() -> None:
    """A pattern that needs quadratic time meets a value of a megabyte."""
    request = {
        **valid(input_shape("CreateTrainingJob")),
        "OutputDataConfig": {"S3OutputPath": "s3://" + "a" * 1_000_000 + "\n"},
    }
    started = time.perf_counter()
    (text,) = check("CreateTrainingJob", request)
    assert time.perf_counter() - started < 0.5
    assert len(text) < 2000


def test_a_check_takes_less_than_a_millisecond() -> None:
    request = {
        **valid(input_shape("CreateTrainingJob")),
        "HyperParameters": {f"name-{number}": "0.1" for number in range(30)},
        "Environment": {f"NAME_{number}": "value" for number in range(30)},
        "InputDataConfig": [valid(input_shape("CreateTrainingJob").members["InputDataConfig"].member)] * 4,
    }
    check("CreateTrainingJob", request)
    best = min(_timed(request) for _ in range(20))
    assert best < 0.001


def _timed(request: object) -> float:
    started = time.perf_counter()
    check("CreateTrainingJob", request)
    return time.perf_counter() - started
