"""What clients ask for is answered; the store is told only what it can do."""

from __future__ import annotations

import pytest

from trainshed_service.s3 import sse
from trainshed_service.wire.errors import ApiError

DEFAULT_KEY = "arn:aws:kms:us-east-1:123456789012:alias/aws/s3"


def editor(mode: str) -> sse.SseEditor:
    return sse.SseEditor(sse.SseMode(mode), DEFAULT_KEY)


@pytest.mark.parametrize("algorithm", [None, "AES256", "aws:kms", "aws:kms:dsse"])
def test_aes_encrypts_whatever_was_asked(algorithm: str | None) -> None:
    headers = {sse.ALGORITHM: algorithm} if algorithm else {}
    asked = editor("aes").edit_request(headers, creates=True)
    assert headers[sse.ALGORITHM] == "AES256"
    assert (asked.algorithm if asked else None) == algorithm
    assert (sse.NOTE in headers) == bool(algorithm and algorithm.startswith("aws:kms"))


@pytest.mark.parametrize("mode", ["aes", "strip"])
def test_no_kms_header_reaches_the_store(mode: str) -> None:
    headers = {sse.ALGORITHM: "aws:kms", sse.KEY_ID: "my-key", sse.CONTEXT: "e30=", sse.BUCKET_KEY: "true"}
    editor(mode).edit_request(headers, creates=True)
    assert "aws:kms" not in (headers.get(sse.ALGORITHM) or "")
    assert not {sse.KEY_ID, sse.CONTEXT, sse.BUCKET_KEY} & headers.keys()


@pytest.mark.parametrize("mode", ["aes", "strip"])
@pytest.mark.parametrize(("key_id", "said"), [(None, DEFAULT_KEY), ("my-key", "my-key")])
def test_later_answers_say_what_was_asked(mode: str, key_id: str | None, said: str) -> None:
    request = {sse.ALGORITHM: "aws:kms"} | ({sse.KEY_ID: key_id} if key_id else {})
    asked = editor(mode).edit_request(request, creates=True)
    now, later = {sse.ALGORITHM: "AES256"}, {sse.NOTE: request[sse.NOTE], "etag": "x"}
    editor(mode).edit_answer(now, asked)
    editor(mode).edit_answer(later, None)
    assert now == {sse.ALGORITHM: "aws:kms", sse.KEY_ID: said}
    assert later == {sse.ALGORITHM: "aws:kms", sse.KEY_ID: said, "etag": "x"}


def test_strip_tells_the_store_nothing_and_remembers() -> None:
    headers = {sse.ALGORITHM: "AES256"}
    editor("strip").edit_request(headers, creates=True)
    assert headers == {sse.NOTE: "AES256"}
    plain: dict[str, str] = {}
    editor("strip").edit_request(plain, creates=True)
    assert plain == {}


def test_a_client_cannot_set_the_note() -> None:
    headers = {sse.NOTE: "aws:kms stolen"}
    editor("aes").edit_request(headers, creates=True)
    assert sse.NOTE not in headers


def test_customer_keys_pass_untouched() -> None:
    headers = {sse.CUSTOMER_ALGORITHM: "AES256", sse.CUSTOMER_ALGORITHM + "-x": "y"}
    before = dict(headers)
    editor("aes").edit_request(headers, creates=True)
    assert headers == before


@pytest.mark.parametrize(
    "headers",
    [{sse.ALGORITHM: "rot13"}, {sse.KEY_ID: "k"}, {sse.ALGORITHM: "aws:kms", sse.KEY_ID: "two words"}],
)
def test_what_s3_does_not_know_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(ApiError, match="InvalidArgument"):
        editor("aes").edit_request(headers, creates=True)


def test_uploads_are_remembered_and_forgotten() -> None:
    edit = editor("aes")
    edit.remember_upload("u", sse.Asked("aws:kms"))
    assert edit.of_upload("u") == sse.Asked("aws:kms")
    edit.forget_upload("u")
    assert edit.of_upload("u") is None
