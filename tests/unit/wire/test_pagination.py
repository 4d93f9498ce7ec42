"""Page tokens: whole round trips, no forgery, no use with another query."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed_service.wire.errors import ApiError
from trainshed_service.wire.pagination import PageTokens

TOKENS = PageTokens(b"k" * 32)
cursors = st.lists(st.one_of(st.none(), st.integers(), st.text(), st.floats(allow_nan=False, allow_infinity=False)))
queries = st.dictionaries(st.text(max_size=5), st.one_of(st.text(max_size=5), st.integers()), max_size=3)


def refusal(kind: str, query: dict[str, Any], token: str, tokens: PageTokens = TOKENS) -> str:
    with pytest.raises(ApiError) as caught:
        tokens.read(kind, query, token)
    assert caught.value.code == "ValidationException"
    return caught.value.message


@given(cursors, queries)
def test_round_trip(cursor: list[Any], query: dict[str, Any]) -> None:
    token = TOKENS.issue("List", query, cursor)
    assert TOKENS.read("List", query, token) == cursor
    assert len(token) <= 8192 or len(str(cursor)) > 1000


def test_page_size_and_token_itself_may_change() -> None:
    token = TOKENS.issue("List", {"SortBy": "Name", "MaxResults": 5}, ["a"])
    assert TOKENS.read("List", {"SortBy": "Name", "MaxResults": 7, "NextToken": token}, token) == ["a"]


@given(cursors, st.data())
def test_any_changed_byte_is_refused(cursor: list[Any], data: st.DataObject) -> None:
    token = TOKENS.issue("List", {}, cursor)
    raw = bytearray(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    refusal("List", {}, base64.urlsafe_b64encode(bytes(raw)).decode().rstrip("="))


@given(st.text(max_size=60))
def test_foreign_text_is_refused(token: str) -> None:
    assert "not issued" in refusal("List", {}, token)


def test_other_query_operation_and_key() -> None:
    token = TOKENS.issue("List", {"SortBy": "Name"}, ["a"])
    assert "another query" in refusal("List", {"SortBy": "Status"}, token)
    assert "another query" in refusal("List", {}, token)
    assert "another query" in refusal("Search", {"SortBy": "Name"}, token)
    assert "not issued" in refusal("List", {"SortBy": "Name"}, token, PageTokens(b"x" * 32))
