"""Which objects of a channel a host gets and under what names: pure functions, no network.

Rules: S3Prefix takes every key that begins with the prefix. ShardedByS3Key deals the keys out in order, one to each
host in turn, so shards differ by at most one object and nothing is missing or doubled. ShuffleConfig.Seed shuffles
before dealing, in the same way on every host.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

from trainshed_worker.data.errors import DataError
from trainshed_worker.data.store import Location, parse_uri
from trainshed_worker.protocol import FailureCause

MAX_NAME_BYTES = 255
Key = str


@dataclass(frozen=True)
class RemoteObject:
    """One object to be downloaded: where it is, and its path below the channel's directory."""

    bucket: str
    key: str
    size: int
    etag: str
    path: str
    """Relative to the channel; ends with a slash for a directory marker."""

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


def relative_path(prefix: str, key: str) -> str:
    """Name below the channel's directory of `key`, which begins with `prefix`.

    `data/` or `data` give `a.csv` for `data/a.csv`; a prefix that is the whole key gives its last part; a prefix that
    ends within a name (`data/pa` of `data/part-1`) gives the name from its start.
    """
    if key == prefix and not key.endswith("/"):
        return key.rsplit("/", 1)[-1]
    if prefix == "" or prefix.endswith("/"):
        return key[len(prefix) :]
    if key.startswith(prefix + "/"):
        return key[len(prefix) + 1 :]
    return key[prefix.rfind("/") + 1 :]


def safe_path(name: str, uri: str) -> str:
    """`name` as a path that stays in its directory, without empty parts; DataError where it cannot be a file here."""
    parts = [part for part in name.split("/") if part]
    for part in parts:
        if part in (".", "..") or "\0" in part:
            raise DataError(
                FailureCause.USER_INPUT, f"the object key {uri} has a part {part!r} that cannot be a file name"
            )
        if len(part.encode("utf-8", "surrogateescape")) > MAX_NAME_BYTES:
            raise DataError(
                FailureCause.USER_INPUT, f"the object key {uri} has a part of more than {MAX_NAME_BYTES} bytes"
            )
    path = "/".join(parts)
    return path + "/" if path and name.endswith("/") else path


def check_no_clash(objects: Sequence[RemoteObject]) -> None:
    """DataError where two objects want the same path, or one is a file where another needs a directory."""
    files: dict[str, str] = {}
    for item in objects:
        if item.path.endswith("/"):
            continue
        if item.path in files:
            raise DataError(
                FailureCause.USER_INPUT, f"{files[item.path]} and {item.uri} would both become the file {item.path}"
            )
        files[item.path] = item.uri
    for item in objects:
        parts = item.path.rstrip("/").split("/")
        parents = ["/".join(parts[:n]) for n in range(1, len(parts) + (1 if item.path.endswith("/") else 0))]
        for parent in parents:
            if parent in files:
                raise DataError(
                    FailureCause.USER_INPUT,
                    f"{files[parent]} is an object and also the folder of {item.uri}; a file system cannot hold both",
                )


def order(keys: Sequence[Key], shuffle_seed: int | None) -> list[Key]:
    """Keys in the order in which they are dealt out and delivered: sorted, or shuffled by the seed."""
    ordered = sorted(keys, key=lambda key: key.encode("utf-8", "surrogateescape"))
    if shuffle_seed is not None:
        random.Random(shuffle_seed).shuffle(ordered)
    return ordered


def shard(keys: Sequence[Key], index: int, count: int) -> list[Key]:
    """Host `index` of `count`'s share: every `count`-th key. Hosts beyond the number of keys get none."""
    if not 0 <= index < count:
        raise ValueError(f"shard {index} of {count}")
    return list(keys[index::count])


def manifest_entries(content: bytes, uri: str) -> list[tuple[Location, str]]:
    """Objects that a ManifestFile names, with their paths: `[{"prefix": "s3://…"}, "suffix", …]`."""

    def wrong(why: str) -> DataError:
        return DataError(
            FailureCause.USER_INPUT,
            f'the manifest {uri} {why}; expected [{{"prefix": "s3://bucket/prefix"}}, "suffix", …]',
        )

    try:
        document = json.loads(content)
    except ValueError as error:
        raise wrong(f"is not JSON ({error})") from error
    if not isinstance(document, list) or not document or not isinstance(document[0], dict):
        raise wrong("is not a JSON array that starts with an object")
    prefix = document[0].get("prefix")
    if not isinstance(prefix, str):
        raise wrong("has no prefix")
    found: dict[str, tuple[Location, str]] = {}
    for suffix in document[1:]:
        if not isinstance(suffix, str):
            raise wrong(f"has an entry that is not a string: {suffix!r}")
        try:
            location = parse_uri(prefix + suffix)
        except ValueError as error:
            raise wrong(f"has a bad entry: {error}") from error
        if not location.key or location.key.endswith("/"):
            raise wrong(f"names {location.uri}, which is not an object")
        name = suffix.lstrip("/") or location.key.rsplit("/", 1)[-1]
        found.setdefault(location.uri, (location, safe_path(name, location.uri)))
    return list(found.values())
