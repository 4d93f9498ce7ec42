"""Forms to requests and results to XML; what botocore parses back is what went in."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.parsers import create_parser
from botocore.serialize import QuerySerializer
from hypothesis import given
from hypothesis import strategies as st

from trainshed_service.wire import query_protocol
from trainshed_service.wire.errors import ApiError
from trainshed_service.wire.models import operation_model, service_model

words = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xD7FF), max_size=12)


@given(names=st.lists(words, min_size=1, max_size=4), resources=st.lists(words, max_size=3), source=words)
def test_requests_come_back_as_botocore_sent_them(names: list[str], resources: list[str], source: str) -> None:
    operation = operation_model("iam", "SimulatePrincipalPolicy")
    assert operation is not None
    request: dict[str, Any] = {"PolicySourceArn": source, "ActionNames": names, "MaxItems": 7}
    if resources:
        request["ResourceArns"] = resources
    sent = QuerySerializer().serialize_to_request(request, operation)["body"]
    found, unknown = query_protocol.decode({k: str(v) for k, v in sent.items()}, operation.input_shape)
    assert found == request
    assert unknown == []


@given(label=words, values=st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), max_size=4))
def test_results_are_read_by_botocore(label: str, values: list[float]) -> None:
    operation = operation_model("cloudwatch", "GetMetricData")
    assert operation is not None
    times = [1_800_000_000.25 + index for index in range(len(values))]
    result = {
        "MetricDataResults": [{"Id": "a", "Label": label, "Timestamps": times, "Values": values}],
        "Messages": [],
    }
    body = query_protocol.render(service_model("cloudwatch"), operation, result, "rid")
    answer = {"status_code": 200, "headers": {}, "body": body}
    parsed = create_parser("query").parse(answer, operation.output_shape)
    (series,) = parsed["MetricDataResults"]
    assert series["Label"].replace("\r\n", "\n").replace("\r", "\n") == label.replace("\r\n", "\n").replace("\r", "\n")
    assert series["Values"] == values
    assert [moment.timestamp() for moment in series["Timestamps"]] == times
    assert parsed["ResponseMetadata"]["RequestId"] == "rid"


@given(st.dictionaries(st.text(max_size=30), st.text(max_size=10), max_size=6))
def test_odd_forms_are_requests_or_errors(fields: dict[str, str]) -> None:
    operation = operation_model("cloudwatch", "GetMetricData")
    assert operation is not None
    try:
        query_protocol.decode(fields, operation.input_shape)
    except ApiError as error:
        assert error.code == "SerializationException"


@given(st.binary(max_size=80))
def test_odd_bodies_are_forms_or_errors(body: bytes) -> None:
    try:
        query_protocol.parse_form(body)
    except ApiError as error:
        assert error.code == "SerializationException"


def test_unknown_fields_and_bad_values() -> None:
    operation = operation_model("cloudwatch", "GetMetricStatistics")
    assert operation is not None
    form = {"Period": "60", "Foo": "x", "Dimensions.member.1.Bar": "y", "Action": "A", "Version": "v"}
    request, unknown = query_protocol.decode(form, operation.input_shape)
    assert request == {"Period": 60, "Dimensions": [{}]}
    assert sorted(unknown) == ["Dimensions.member.1.Bar", "Foo"]
    for bad in (
        {"Period": "1.5"},
        {"StartTime": "yesterday"},
        {"Dimensions.member.x.Name": "a"},
        {".".join(["Dimensions"] * 30): "a"},
        {"Period.x": "1"},
    ):
        with pytest.raises(ApiError):
            query_protocol.decode(bad, operation.input_shape)


def test_errors_carry_what_xml_cannot() -> None:
    body = query_protocol.render_error("ns", ApiError("Code", "a\0<b>\ud800"), "rid").decode()
    assert "<Message>a\N{REPLACEMENT CHARACTER}&lt;b&gt;\N{REPLACEMENT CHARACTER}</Message>" in body
