"""Search expressions over jobs as DescribeTrainingJob shows them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed_service.sagemaker.search import MAX_CONDITIONS, compile_search
from trainshed_service.wire.constraints import validator
from trainshed_service.wire.errors import ApiError

JOB: dict[str, Any] = {
    "TrainingJobName": "blue-1",
    "TrainingJobStatus": "Completed",
    "HyperParameters": {"lr": "0.5", "model": '"gpt"', "a.b": "x", "epochs": "10"},
    "CreationTime": 1_800_000_000.25,
    "EnableNetworkIsolation": False,
    "TrainingTimeInSeconds": 100,
    "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2},
    "InputDataConfig": [
        {"ChannelName": "train", "DataSource": {"S3DataSource": {"S3Uri": "s3://b/cat", "S3DataType": "S3Prefix"}}},
        {"ChannelName": "test", "DataSource": {"S3DataSource": {"S3Uri": "s3://b/dog", "S3DataType": "S3Prefix"}}},
    ],
    "FinalMetricDataList": [{"MetricName": "loss", "Value": 0.25, "Timestamp": 1.0}],
    "Tags": [{"Key": "team", "Value": "blue"}, {"Key": "a.b", "Value": ""}],
}


def filters(*items: tuple[Any, ...], operator: str | None = None) -> dict[str, Any]:
    made = []
    for name, *rest in items:
        entry = {"Name": name}
        if len(rest) == 1:
            entry["Value"] = rest[0]
        elif rest:
            entry["Operator"] = rest[0]
            if rest[1] is not None:
                entry["Value"] = rest[1]
        made.append(entry)
    return {"Filters": made, **({"Operator": operator} if operator else {})}


def found(expression: dict[str, Any] | None) -> bool:
    request = {"Resource": "TrainingJob", "SearchExpression": expression}
    assert validator("sagemaker", "Search").check(request).violations == []
    return compile_search(expression).matches(JOB)


@pytest.mark.parametrize(
    ("name", "operator", "value", "expected"),
    [
        ("TrainingJobName", "Equals", "blue-1", True),
        ("TrainingJobName", "Equals", "blue", False),
        ("TrainingJobName", "NotEquals", "blue", True),
        ("TrainingJobName", "Contains", "lue", True),
        ("TrainingJobName", "Contains", "red", False),
        ("TrainingJobName", "In", "a, blue-1", True),
        ("TrainingJobName", "In", "a,b", False),
        ("FailureReason", "Exists", None, False),
        ("FailureReason", "NotExists", None, True),
        ("FailureReason", "Equals", "x", False),
        ("FailureReason", "NotEquals", "x", True),
        ("TrainingJobStatus", "Exists", None, True),
        ("HyperParameters.lr", "LessThan", "0.6", True),
        ("HyperParameters.lr", "GreaterThan", "0.6", False),
        ("HyperParameters.lr", "LessThan", "1", True),
        ("HyperParameters.epochs", "GreaterThanOrEqualTo", "10", True),
        ("HyperParameters.model", "LessThan", "1", False),
        ("HyperParameters.model", "Equals", '"gpt"', True),
        ("HyperParameters.a.b", "Equals", "x", True),
        ("HyperParameters.none", "NotExists", None, True),
        ("Metrics.loss", "LessThan", "0.3", True),
        ("Metrics.loss", "GreaterThanOrEqualTo", "0.25", True),
        ("Metrics.loss", "Equals", "0.25", True),
        ("Metrics.acc", "GreaterThan", "0", False),
        ("Metrics.acc", "NotExists", None, True),
        ("Tags.team", "Equals", "blue", True),
        ("Tags.team", "NotEquals", "blue", False),
        ("Tags.a.b", "Exists", None, True),
        ("Tags.none", "Exists", None, False),
        ("CreationTime", "GreaterThan", "2027-01-15T08:00:00Z", True),
        ("CreationTime", "GreaterThan", "2027-01-15T08:00:01Z", False),
        ("CreationTime", "LessThanOrEqualTo", "2027-01-15T09:00:01", True),
        ("CreationTime", "Equals", "1800000000.25", True),
        ("TrainingTimeInSeconds", "Equals", "100", True),
        ("TrainingTimeInSeconds", "In", "99,100.0", True),
        ("TrainingTimeInSeconds", "LessThan", "100", False),
        ("ResourceConfig.InstanceCount", "GreaterThan", "1", True),
        ("ResourceConfig.InstanceType", "Contains", "m5", True),
        ("EnableNetworkIsolation", "Equals", "false", True),
        ("EnableManagedSpotTraining", "Equals", "false", False),
        ("InputDataConfig.ChannelName", "Equals", "test", True),
        ("InputDataConfig.DataSource.S3DataSource.S3Uri", "Contains", "dog", True),
        ("InputDataConfig.ChannelName", "NotEquals", "test", False),
    ],
)
def test_operators(name: str, operator: str, value: str | None, expected: bool) -> None:
    assert found(filters((name, operator, value))) is expected


def test_equals_is_the_default_and_and_the_default_of_lists() -> None:
    assert found(filters(("TrainingJobName", "blue-1"), ("TrainingJobStatus", "Completed")))
    assert not found(filters(("TrainingJobName", "blue-1"), ("TrainingJobStatus", "Failed")))
    assert found(filters(("TrainingJobName", "blue-1"), ("TrainingJobStatus", "Failed"), operator="Or"))
    assert found(None)
    assert compile_search(None).names is None


def nested(*items: tuple[str, str, str]) -> dict[str, Any]:
    made = filters(*items)["Filters"]
    return {"NestedFilters": [{"NestedPropertyName": "InputDataConfig", "Filters": made}]}


def test_nested_filters_hold_for_one_element() -> None:
    uri = "InputDataConfig.DataSource.S3DataSource.S3Uri"
    assert found(nested(("InputDataConfig.ChannelName", "Equals", "train"), (uri, "Contains", "cat")))
    assert not found(nested(("InputDataConfig.ChannelName", "Equals", "train"), (uri, "Contains", "dog")))
    assert found(nested(("ChannelName", "Equals", "test"), ("DataSource.S3DataSource.S3Uri", "Contains", "dog")))


def test_sub_expressions() -> None:
    inner = filters(("TrainingJobStatus", "Failed"), ("TrainingJobStatus", "Completed"), operator="Or")
    assert found({"SubExpressions": [inner, filters(("Tags.team", "blue"))], "Operator": "And"})
    assert not found({"SubExpressions": [inner, filters(("Tags.team", "red"))]})


@pytest.mark.parametrize(
    ("expression", "part"),
    [
        (filters(("Nothing", "x")), "Unknown property name: 'Nothing'"),
        (filters(("ResourceConfig.Nothing", "x")), "Unknown property name"),
        (filters(("TrainingJobName.x", "x")), "Unknown property name"),
        (filters(("TrainingJobName", "Exists", "x")), "takes no Value"),
        (filters(("TrainingJobName",)), "needs a Value"),
        (filters(("TrainingJobName", "GreaterThan", "a")), "not supported for TrainingJobName"),
        (filters(("EnableNetworkIsolation", "LessThan", "1")), "not supported"),
        (filters(("EnableNetworkIsolation", "Equals", "maybe")), "true or false"),
        (filters(("TrainingTimeInSeconds", "LessThan", "ten")), "needs a number"),
        (filters(("TrainingTimeInSeconds", "Equals", "nan")), "is a number"),
        (filters(("TrainingTimeInSeconds", "Contains", "1")), "is for text"),
        (filters(("CreationTime", "GreaterThan", "soon")), "is a time such as"),
        ({"Operator": "And"}, "needs Filters, NestedFilters or SubExpressions"),
        (
            {"NestedFilters": [{"NestedPropertyName": "ResourceConfig", "Filters": [{"Name": "InstanceType"}]}]},
            "must name a list",
        ),
        ({"SubExpressions": [filters(*[("TrainingJobName", "a")] * 20)] * 11}, f"at most {MAX_CONDITIONS}"),
    ],
)
def test_misuse_is_told(expression: dict[str, Any], part: str) -> None:
    with pytest.raises(ApiError) as caught:
        compile_search(expression)
    assert caught.value.code == "ValidationException"
    assert part in caught.value.message


def names(expression: dict[str, Any]) -> set[str] | None:
    compiled = compile_search(expression)
    return None if compiled.names is None else set(compiled.names)


def test_names_that_can_match_are_known() -> None:
    """Pollers ask for up to twenty names at once: such a search reads those jobs only."""
    many = [("TrainingJobName", f"job-{number}") for number in range(20)]
    assert names(filters(*many, operator="Or")) == {f"job-{number}" for number in range(20)}
    assert names(filters(("TrainingJobName", "In", "a,b"), ("TrainingJobStatus", "Failed"))) == {"a", "b"}
    assert names(filters(("TrainingJobName", "a"), ("TrainingJobName", "b"))) == set()
    assert names(filters(("TrainingJobName", "a"), ("TrainingJobStatus", "Failed"), operator="Or")) is None
    assert names(filters(("TrainingJobName", "NotEquals", "a"))) is None
    assert names({"SubExpressions": [filters(("TrainingJobName", "a")), filters(("Tags.team", "x"))]}) == {"a"}


properties = st.sampled_from(
    ["TrainingJobName", "TrainingJobStatus", "HyperParameters.lr", "Metrics.loss", "Tags.team"]
)
operators = st.sampled_from(["Equals", "NotEquals", "Contains", "In", "LessThan", "GreaterThan", "Exists", "NotExists"])
values = st.sampled_from(["blue-1", "Completed", "0.5", "1", "blue", "x"])
leaves = st.lists(
    st.builds(lambda n, o, v: {"Name": n, "Operator": o, "Value": v}, properties, operators, values),
    min_size=1,
    max_size=3,
).map(lambda items: {"Filters": items})
expressions = st.recursive(
    leaves,
    lambda inner: st.builds(
        lambda parts, operator: {"SubExpressions": parts, "Operator": operator},
        st.lists(inner, min_size=1, max_size=3),
        st.sampled_from(["And", "Or"]),
    ),
    max_leaves=6,
)


@given(expressions)
def test_any_expression_compiles_or_is_refused_and_hints_never_lie(expression: dict[str, Any]) -> None:
    try:
        compiled = compile_search(expression)
    except ApiError as error:
        assert error.code == "ValidationException"
        return
    if compiled.matches(JOB):
        assert compiled.names is None or JOB["TrainingJobName"] in compiled.names
    assert compiled.matches({}) in (True, False)
