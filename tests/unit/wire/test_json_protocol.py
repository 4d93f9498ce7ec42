"""Bodies of the JSON protocol: what comes in can go out again, whatever it holds."""

from __future__ import annotations

import json

import pytest

from trainshed_service.wire import json_protocol
from trainshed_service.wire.errors import ApiError


@pytest.mark.parametrize(
    "response",
    [
        {},
        {"Time": 1764502800.123456, "Name": "größe 𝄞", "Nested": [{"Flag": True, "None": None}]},
        {"Big": 10**30},
        {"Half": "\ud83d"},
    ],
)
def test_answers_are_compact_json_that_says_the_same(response: dict[str, object]) -> None:
    body = json_protocol.encode(response)
    assert json.loads(body) == response
    assert b": " not in body


def test_no_response_is_an_empty_body() -> None:
    assert json_protocol.encode(None) == b""


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"a": NaN}', b"\xff", b'{"a": "\\ud83d"}'])
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        json_protocol.decode(body)
    assert caught.value.code == "SerializationException"
