"""Channels and archives by way of the node's cache, over a real object store."""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
import tarfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_gang import access_to, gang
from tests.support.seaweed import fresh_bucket, s3_client
from tests.support.wait import wait_until
from trainshed_service.embedded.store import EmbeddedStore
from trainshed_worker.contract import InstanceLayout, channels
from trainshed_worker.data import DataError, ObjectCache, ObjectStore, RoleCache, download_channel, fetch_code

ROLE = "arn:aws:iam::123456789012:role/test"


@pytest.fixture
def bucket(seaweed_store: EmbeddedStore) -> str:
    return fresh_bucket(seaweed_store)


@pytest.fixture
def client(seaweed_store: EmbeddedStore) -> Any:
    return s3_client(seaweed_store)


@pytest.fixture
def role(tmp_path: Path) -> Any:
    cache = ObjectCache(tmp_path / "cache", 1 << 30, shared=True)
    yield cache.for_role(ROLE)
    cache.close()


class Watched:
    """A store and how often it was asked what."""

    def __init__(self, store: EmbeddedStore, **changes: Any) -> None:
        self.calls: Counter[str] = Counter()
        self.store = ObjectStore(access_to(store).model_copy(update=changes), stall_seconds=10)
        self.store.client.meta.events.register("before-call.s3", self._count)

    def _count(self, model: Any, **_: Any) -> None:
        self.calls[model.name] += 1


def fetch(watched: Watched, bucket: str, root: Path, role: RoleCache | None) -> dict[str, bytes]:
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{bucket}/train"}
    (member,) = gang(
        access_to_nothing(), bucket, InputDataConfig=[{"ChannelName": "train", "DataSource": {"S3DataSource": source}}]
    )
    (channel,) = channels(member)
    directory = root / "lower" / "train"
    download_channel(
        watched.store, channel, directory, root / "state", lambda done, total: None, lambda note: None, role
    )
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def access_to_nothing() -> Any:
    from tests.support.agent_gang import nowhere

    return nowhere()


def fill(client: Any, bucket: str, count: int = 20, size: int = 50_000) -> dict[str, bytes]:
    made = {f"{number:02}/{number}.bin": random.Random(number).randbytes(size) for number in range(count)}
    for name, content in made.items():
        client.put_object(Bucket=bucket, Key=f"train/{name}", Body=content)
    return made


def test_what_did_not_change_is_not_fetched_again_and_what_did_is(
    seaweed_store: EmbeddedStore, client: Any, bucket: str, tmp_path: Path, role: RoleCache
) -> None:
    made = fill(client, bucket)
    client.upload_fileobj(io.BytesIO(large := random.Random(1).randbytes(12 << 20)), bucket, "train/multipart")
    made["multipart"] = large
    cold = Watched(seaweed_store)
    assert fetch(cold, bucket, tmp_path / "one", role) == made
    assert cold.calls["GetObject"] >= len(made)
    warm = Watched(seaweed_store)
    assert fetch(warm, bucket, tmp_path / "two", role) == made
    assert warm.calls == {"ListObjectsV2": 1}
    assert not (tmp_path / "two" / "state").exists() or not any((tmp_path / "two" / "state").iterdir())
    client.put_object(Bucket=bucket, Key="train/03/3.bin", Body=b"new")
    client.delete_object(Bucket=bucket, Key="train/04/4.bin")
    client.put_object(Bucket=bucket, Key="train/more", Body=b"")
    made["03/3.bin"], made["more"] = b"new", b""
    del made["04/4.bin"]
    third = Watched(seaweed_store)
    assert fetch(third, bucket, tmp_path / "three", role) == made
    assert third.calls["GetObject"] <= 2
    again = Watched(seaweed_store)
    assert fetch(again, bucket, tmp_path / "one", role)["03/3.bin"] == b"new"  # over what a crash had left there
    assert again.calls["GetObject"] == 0


def test_another_role_and_one_that_may_not_list_get_nothing_of_it(
    seaweed_store: EmbeddedStore, client: Any, bucket: str, tmp_path: Path, role: RoleCache
) -> None:
    made = fill(client, bucket, count=3)
    fetch(Watched(seaweed_store), bucket, tmp_path / "one", role)
    other = Watched(seaweed_store)
    assert fetch(other, bucket, tmp_path / "other", role.cache.for_role("another")) == made
    assert other.calls["GetObject"] == len(made)
    refused = Watched(seaweed_store, secret_access_key="wrong")
    with pytest.raises(DataError, match="reading s3://"):
        fetch(refused, bucket, tmp_path / "refused", role)
    assert not (tmp_path / "refused" / "lower").exists()


def test_a_damaged_entry_is_fetched_anew(
    seaweed_store: EmbeddedStore, client: Any, bucket: str, tmp_path: Path, role: RoleCache
) -> None:
    made = fill(client, bucket, count=5)
    fetch(Watched(seaweed_store), bucket, tmp_path / "one", role)
    entries = sorted(path for path in (tmp_path / "cache" / "objects").rglob("*") if path.is_file())
    entries[0].write_bytes(b"X" * entries[0].stat().st_size)
    os.truncate(entries[1], 7)
    entries[2].unlink()
    watched = Watched(seaweed_store)
    assert fetch(watched, bucket, tmp_path / "two", role) == made
    assert watched.calls["GetObject"] == 3


def test_hosts_of_one_node_bring_each_object_once(
    seaweed_store: EmbeddedStore, client: Any, bucket: str, tmp_path: Path, role: RoleCache
) -> None:
    made = fill(client, bucket, count=30)
    watched = Watched(seaweed_store)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda number: fetch(watched, bucket, tmp_path / str(number), role), range(4)))
    assert found == [made] * 4
    assert watched.calls["GetObject"] == len(made)


def test_a_cache_that_is_too_small_for_the_channel_still_gives_all_of_it(
    seaweed_store: EmbeddedStore, client: Any, bucket: str, tmp_path: Path
) -> None:
    made = fill(client, bucket)
    cache = ObjectCache(tmp_path / "small", 120_000, shared=True)
    for turn in range(2):
        assert fetch(Watched(seaweed_store), bucket, tmp_path / str(turn), cache.for_role(ROLE)) == made
        assert cache.size().bytes <= 120_000
    cache.close()


_KILLED = """
import json, sys
from pathlib import Path
from tests.integration.data.test_cached_channels import ROLE, fetch
from trainshed_worker.data import ObjectCache, ObjectStore
from trainshed_worker.protocol import ObjectStoreAccess
access, bucket, folder = json.loads(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
class Bare:
    store = ObjectStore(ObjectStoreAccess(**access))
print("begun", flush=True)
fetch(Bare, bucket, folder / "job", ObjectCache(folder / "cache", 1 << 30, shared=True).for_role(ROLE))
print("done", flush=True)
"""


def test_kill_9_at_any_moment_leaves_no_wrong_entry(
    seaweed_store: EmbeddedStore, client: Any, bucket: str, tmp_path: Path
) -> None:
    made = fill(client, bucket, count=60, size=200_000)
    access = access_to(seaweed_store).model_dump_json()
    objects = tmp_path / "cache" / "objects"
    for wanted in (1, 20, 45):
        with subprocess.Popen(
            [sys.executable, "-c", _KILLED, access, bucket, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            wait_until(
                # One more, since a file is put in its place just before its row.
                lambda: sum(1 for _ in objects.glob("*/*")) > wanted or process.poll() is not None,  # noqa: B023
                every=0.001,
                what="some entries",
            )
            process.kill()
        cache = ObjectCache(tmp_path / "cache", 1 << 30, shared=True)
        rows, used = cache.size().entries, cache.size().bytes
        files = [path for path in objects.glob("*/*")]
        assert (len(files), sum(path.stat().st_size for path in files)) == (rows, used)
        assert {path.read_bytes() for path in files} <= set(made.values())
        cache.close()
    cache = ObjectCache(tmp_path / "cache", 1 << 30, shared=True)
    watched = Watched(seaweed_store)
    assert fetch(watched, bucket, tmp_path / "job", cache.for_role(ROLE)) == made
    assert watched.calls["GetObject"] <= len(made) - 45
    cache.close()


def test_a_source_archive_is_fetched_once(
    seaweed_store: EmbeddedStore, client: Any, bucket: str, tmp_path: Path, role: RoleCache
) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        member = tarfile.TarInfo("train.py")
        member.size = 5
        tar.addfile(member, io.BytesIO(b"pass\n"))
    client.put_object(Bucket=bucket, Key="code.tar.gz", Body=content.getvalue())
    (assignment,) = gang(
        access_to(seaweed_store),
        bucket,
        HyperParameters={
            "sagemaker_program": "train.py",
            "sagemaker_submit_directory": f"s3://{bucket}/code.tar.gz",
        },
    )
    for turn, gets in enumerate((1, 0)):
        layout = InstanceLayout(tmp_path / str(turn))
        layout.create()
        watched = Watched(seaweed_store)
        fetch_code(watched.store, assignment, layout, lambda note: None, role)
        assert (layout.code / "train.py").read_text() == "pass\n"
        assert (watched.calls["HeadObject"], watched.calls["GetObject"]) == (1, gets)
