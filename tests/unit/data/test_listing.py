"""Names, shards and manifests."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed_worker.data.errors import DataError
from trainshed_worker.data.listing import (
    RemoteObject,
    check_no_clash,
    manifest_entries,
    order,
    relative_path,
    safe_path,
    shard,
)


@pytest.mark.parametrize(
    ("prefix", "key", "name"),
    [
        ("data/", "data/a.csv", "a.csv"),
        ("data", "data/a.csv", "a.csv"),
        ("data", "data/sub/a.csv", "sub/a.csv"),
        ("data/a.csv", "data/a.csv", "a.csv"),
        ("data/pa", "data/part-1", "part-1"),
        ("data/pa", "data/part/1", "part/1"),
        ("", "a/b", "a/b"),
        ("data", "data/", ""),
        ("d", "data/x", "data/x"),
    ],
)
def test_relative_path(prefix: str, key: str, name: str) -> None:
    assert relative_path(prefix, key) == name


@pytest.mark.parametrize("name", ["../x", "a/../../x", "a/./b", "..", "a/..", "a\0b", "x" * 256])
def test_names_that_cannot_be_files_are_refused(name: str) -> None:
    with pytest.raises(DataError):
        safe_path(name, "s3://b/k")


@pytest.mark.parametrize(
    ("name", "path"),
    [("a b/ü%20+?#.txt", "a b/ü%20+?#.txt"), ("a//b", "a/b"), ("/a", "a"), ("dir/", "dir/"), ("-rf", "-rf")],
)
def test_odd_names_are_kept(name: str, path: str) -> None:
    assert safe_path(name, "s3://b/k") == path


@given(st.text())
def test_safe_paths_stay_below_their_directory(name: str) -> None:
    try:
        path = safe_path(name, "s3://b/k")
    except DataError:
        return
    assert not path.startswith("/")
    assert ".." not in path.split("/")


def item(path: str) -> RemoteObject:
    return RemoteObject("b", path, 1, "e", path)


def test_an_object_that_is_also_a_folder_is_refused() -> None:
    with pytest.raises(DataError, match="cannot hold both"):
        check_no_clash([item("d"), item("d/e")])
    with pytest.raises(DataError, match="both become"):
        check_no_clash([item("d"), item("d")])
    check_no_clash([item("d/"), item("d/e"), item("d/f/g")])


@given(st.lists(st.text(), unique=True), st.integers(1, 7), st.none() | st.integers(0, 100))
def test_shards_are_a_partition_of_even_sizes(keys: list[str], count: int, seed: int | None) -> None:
    dealt = [shard(order(keys, seed), index, count) for index in range(count)]
    assert sorted(key for part in dealt for key in part) == sorted(keys)
    sizes = [len(part) for part in dealt]
    assert max(sizes) - min(sizes) <= 1


@given(st.lists(st.text(), unique=True), st.integers(0, 100))
def test_the_order_depends_on_the_seed_alone(keys: list[str], seed: int) -> None:
    assert order(keys, seed) == order(list(reversed(keys)), seed)
    assert order(keys, None) == order(list(reversed(keys)), None)


def test_manifest() -> None:
    content = json.dumps([{"prefix": "s3://b/data/"}, "x/1", "x/2", "x/1"]).encode()
    found = manifest_entries(content, "s3://b/m")
    assert [(place.uri, path) for place, path in found] == [("s3://b/data/x/1", "x/1"), ("s3://b/data/x/2", "x/2")]


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b'["a"]', b'[{"x": 1}]', b'[{"prefix": "s3://b/"}, 3]', b'[{"prefix": "b/"}, "x"]',
     b'[{"prefix": "s3://b/"}, "x/"]', b'[{"prefix": "s3://b/"}, "../x"]'],
)  # fmt: skip
def test_bad_manifests_say_what_is_expected(content: bytes) -> None:
    with pytest.raises(DataError) as caught:
        manifest_entries(content, "s3://b/m")
    assert "s3://b" in caught.value.message
