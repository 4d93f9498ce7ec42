"""The name that is authorized is the name that the store gets."""

from __future__ import annotations

from urllib.parse import quote, unquote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trainshed_service.s3.target import (
    Target,
    parse_copy_source,
    parse_target,
    query_parameters,
    stored_key,
)
from trainshed_service.wire.errors import ApiError

keys = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=60)


def test_service_bucket_and_object() -> None:
    assert parse_target("/", "h", ()) == Target("", "")
    assert parse_target("/bkt", "h", ()) == parse_target("/bkt/", "h", ()) == Target("bkt", "")
    assert parse_target("/bkt/a%20b/c", "h", ()) == Target("bkt", "a b/c")


@given(keys, st.booleans())
def test_store_path_names_the_same_key(key: str, encode_all: bool) -> None:
    assume(not any(part in (".", "..") for part in key.replace("\\", "/").split("/")))
    raw = quote(key, safe="" if encode_all else "/+:@!$&'()*,;=~")
    target = parse_target("/bkt/" + raw, "h", ())
    assert target.key == key
    assert unquote(target.store_path) == f"/bkt/{key}"


REFUSED = """
/bkt/a/../b /bkt/%2e%2e/x /bkt/. /bkt/a/./b /bkt/a%00 /bkt/%ff //bkt/x bkt /bkt/%2E%2e
/bkt/out%5C..%5Cin /bkt/out/..\\in /bkt/.\\a
"""


@pytest.mark.parametrize("path", REFUSED.split())
def test_names_that_the_store_would_read_differently_are_refused(path: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_target(path, "h", ())
    assert caught.value.status == 400


def test_bucket_before_a_known_host() -> None:
    assert parse_target("/k/x", "bkt.s3.example.org:9000", ["s3.example.org"]) == Target("bkt", "k/x")
    assert parse_target("/bkt/x", "s3.example.org:9000", ["s3.example.org"]) == Target("bkt", "x")
    assert parse_target("/bkt/x", "a.other.org", ["s3.example.org"]) == Target("bkt", "x")


def test_long_keys_and_bad_buckets() -> None:
    with pytest.raises(ApiError, match="KeyTooLong"):
        parse_target("/bkt/" + "a" * 1025, "h", ())
    for name in ("UPPER", "a", "bad%20name", "..", ".x", "-"):
        with pytest.raises(ApiError):
            parse_target(f"/{name}/k", "h", ())


def test_copy_source() -> None:
    assert parse_copy_source("/bkt/a%20b?versionId=1") == Target("bkt", "a b")
    assert parse_copy_source("bkt/x/y") == Target("bkt", "x/y")
    for bad in ("bkt", "bkt/", "/", "", "bkt/../other/x", "%2e%2e/x", "//bkt/x"):
        with pytest.raises(ApiError):
            parse_copy_source(bad)


def test_repeated_parameters_and_dot_segments_in_positions() -> None:
    assert query_parameters("list-type=2&prefix=a%2Fb+c&uploads") == {
        "list-type": "2",
        "prefix": "a/b c",
        "uploads": "",
    }
    for bad in (
        "prefix=a&prefix=b",
        "prefix=a&pre%66ix=b",
        "prefix=out%2F..%2Fin",
        "marker=../x",
        "start-after=a/./b",
        "prefix=out%5C..%5Cin",
    ):
        with pytest.raises(ApiError):
            query_parameters(bad)


def test_stored_key() -> None:
    assert [stored_key(k) for k in ("a//b", "/a", "a/b/", "//a///b")] == ["a/b", "a", "a/b/", "a/b"]
    assert [stored_key(k) for k in ("a\\b", "\\a", "a/\\/b\\")] == ["a/b", "a", "a/b/"]
