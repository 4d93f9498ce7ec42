"""The OpenAPI schemas say what the service accepts, no less and no more."""

from __future__ import annotations

import re
from typing import Any

import pytest

from trainshed_service.rest import calls, create_rest_app
from trainshed_service.rest.schemas import Schemas
from trainshed_service.wire.errors import ApiError, not_found, resource_in_use, validation_error


def resolve(schemas: Schemas, schema: dict[str, Any]) -> dict[str, Any]:
    return schemas.components[schema["$ref"].rsplit("/", 1)[-1]] if "$ref" in schema else schema


def test_the_request_of_a_create_has_its_constraints() -> None:
    schemas = Schemas()
    request = resolve(schemas, schemas.request("CreateTrainingJob"))
    assert request["additionalProperties"] is False
    name = request["properties"]["TrainingJobName"]
    assert (name["minLength"], name["maxLength"]) == (1, 63)
    assert re.search(name["pattern"], "a-name")
    assert not re.search(name["pattern"], "a_name")
    assert not re.search(name["pattern"], "-name")
    resources = resolve(schemas, request["properties"]["ResourceConfig"])
    assert "ml.c5.xlarge" in resources["properties"]["InstanceType"]["enum"]
    assert request["properties"]["HyperParameters"]["maxProperties"] == 100


def test_a_member_in_the_path_is_not_in_the_body() -> None:
    schemas = Schemas()
    request = resolve(schemas, schemas.request("UpdateTrainingJob", without=frozenset({"TrainingJobName"})))
    assert "TrainingJobName" not in request["properties"]
    assert "required" not in request


def test_every_pattern_compiles_and_every_reference_is_there() -> None:
    document = create_rest_app(None).openapi()  # type: ignore[arg-type]
    known = document["components"]["schemas"]
    seen = 0

    def walk(node: Any) -> None:
        nonlocal seen
        if isinstance(node, dict):
            if isinstance(node.get("pattern"), str):
                re.compile(node["pattern"])
                seen += 1
            if isinstance(node.get("$ref"), str):
                assert node["$ref"].rsplit("/", 1)[-1] in known
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(document)
    assert seen > 50


def test_a_search_expression_may_hold_itself() -> None:
    schemas = Schemas()
    schemas.request("Search")
    inner = schemas.components["SearchExpression"]["properties"]["SubExpressions"]["items"]
    assert inner == {"$ref": "#/components/schemas/SearchExpression"}


def test_query_parameters_become_a_request() -> None:
    pairs = [("MaxResults", "5"), ("CreationTimeAfter", "1700000000"), ("LastModifiedTimeBefore", "2026-01-01")]
    assert calls.from_query("ListTrainingJobs", [*pairs, ("NameContains", "7")]) == {
        "MaxResults": 5,
        "CreationTimeAfter": 1_700_000_000.0,
        "LastModifiedTimeBefore": "2026-01-01",
        "NameContains": "7",
    }


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([("MaxResult", "1")], "'MaxResult'"),
        ([("MaxResults", "x")], "whole number"),
        ([("MaxResults", "1"), ("MaxResults", "2")], "more than once"),
    ],
)
def test_bad_query_parameters_are_named(pairs: list[tuple[str, str]], words: str) -> None:
    with pytest.raises(ApiError, match=words):
        calls.from_query("ListTrainingJobs", pairs)


@pytest.mark.parametrize("text", ["-1", "0", "11", "٣", "1e3", "", "9" * 5_000])
def test_a_number_out_of_its_bounds_is_refused(text: str) -> None:
    with pytest.raises(ApiError, match="from 1 to 10"):
        calls.integer({"limit": text}, "limit", 5, 1, 10)


def test_statuses_say_what_the_codes_mean() -> None:
    assert calls.rest_status(not_found()) == 404
    assert calls.rest_status(resource_in_use("x")) == 409
    assert calls.rest_status(validation_error("x")) == 400
    assert calls.rest_status(ApiError("AccessDeniedException", "x")) == 403
    assert calls.rest_status(ApiError("InternalFailure", "x", 500)) == 500


def test_the_name_in_the_body_must_be_that_of_the_path() -> None:
    assert calls.named("a", {}) == {"TrainingJobName": "a"}
    with pytest.raises(ApiError, match="'a' in the path"):
        calls.named("a", {"TrainingJobName": "b"})
