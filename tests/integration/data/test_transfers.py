"""Channels, code and artifacts over a real object store."""

from __future__ import annotations

import hashlib
import io
import os
import random
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_gang import access_to, gang
from tests.support.seaweed import fresh_bucket, s3_client
from trainshed_service.embedded.store import EmbeddedStore
from trainshed_worker.contract import InstanceLayout, channels
from trainshed_worker.data import (
    Cancellation,
    Cancelled,
    DataError,
    ObjectStore,
    Upload,
    assemble,
    check_entry_point,
    download_channel,
    fetch_code,
    upload_parts,
)
from trainshed_worker.protocol import Assignment, FailureCause


@pytest.fixture
def bucket(seaweed_store: EmbeddedStore) -> str:
    return fresh_bucket(seaweed_store)


@pytest.fixture
def client(seaweed_store: EmbeddedStore) -> Any:
    return s3_client(seaweed_store)


@pytest.fixture
def store(seaweed_store: EmbeddedStore) -> ObjectStore:
    return ObjectStore(access_to(seaweed_store), stall_seconds=10)


def members(store: EmbeddedStore, bucket: str, count: int = 1, **source: Any) -> list[Assignment]:
    shuffle = source.pop("Seed", None)
    data = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{bucket}/train", **source}
    entry: dict[str, Any] = {"ChannelName": "train", "DataSource": {"S3DataSource": data}}
    if shuffle is not None:
        entry["ShuffleConfig"] = {"Seed": shuffle}
    return gang(access_to(store), bucket, count, InputDataConfig=[entry])


def fetch(store: ObjectStore, member: Assignment, root: Path) -> dict[str, bytes]:
    (channel,) = channels(member)
    directory = root / "ml" / "input" / "data" / "train"
    download_channel(store, channel, directory, root / "state", lambda done, total: None, lambda note: None)
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()
    }


def test_odd_names_empty_objects_and_large_objects(
    seaweed_store: EmbeddedStore, store: ObjectStore, client: Any, bucket: str, tmp_path: Path
) -> None:
    large = random.Random(1).randbytes(20 << 20)
    objects = {"a b/ü%20+&?#.txt": b"odd", "empty": b"", "large.bin": large, "-rf": b"dash"}
    for name, content in objects.items():
        client.put_object(Bucket=bucket, Key=f"train/{name}", Body=content)
    client.upload_fileobj(io.BytesIO(large), bucket, "train/multipart.bin")
    (member,) = members(seaweed_store, bucket)
    assert fetch(store, member, tmp_path) == {**objects, "multipart.bin": large}
    assert not (tmp_path / "state" / "download-train").exists()


def test_a_second_run_fetches_only_what_is_missing(
    seaweed_store: EmbeddedStore, store: ObjectStore, client: Any, bucket: str, tmp_path: Path
) -> None:
    for number in range(20):
        client.put_object(Bucket=bucket, Key=f"train/{number}", Body=str(number).encode() * 100)
    (member,) = members(seaweed_store, bucket)
    first = fetch(store, member, tmp_path)
    directory = tmp_path / "ml" / "input" / "data" / "train"
    inodes = {path.name: path.stat().st_ino for path in directory.iterdir()}
    (directory / "7").unlink()
    assert fetch(store, member, tmp_path) == first
    again = {path.name: path.stat().st_ino for path in directory.iterdir()}
    assert {name for name in inodes if inodes[name] != again[name]} <= {"7"}


def test_shards_cover_everything_once(
    seaweed_store: EmbeddedStore, store: ObjectStore, client: Any, bucket: str, tmp_path: Path
) -> None:
    for number in range(7):
        client.put_object(Bucket=bucket, Key=f"train/{number}", Body=b"x")
    hosts = members(seaweed_store, bucket, 3, S3DataDistributionType="ShardedByS3Key", Seed=5)
    parts = [set(fetch(store, member, tmp_path / member.host.name)) for member in hosts]
    assert sorted(name for part in parts for name in part) == [str(number) for number in range(7)]
    assert [len(part) for part in parts] == [3, 2, 2]


def test_manifest(seaweed_store: EmbeddedStore, store: ObjectStore, client: Any, bucket: str, tmp_path: Path) -> None:
    client.put_object(Bucket=bucket, Key="any/x/1", Body=b"one")
    client.put_object(Bucket=bucket, Key="any/x/2", Body=b"two")
    manifest = f'[{{"prefix": "s3://{bucket}/any/"}}, "x/1"]'
    client.put_object(Bucket=bucket, Key="m.json", Body=manifest.encode())
    (member,) = members(seaweed_store, bucket, S3DataType="ManifestFile", S3Uri=f"s3://{bucket}/m.json")
    assert fetch(store, member, tmp_path) == {"x/1": b"one"}


def test_an_empty_prefix_and_a_missing_bucket_are_named(
    seaweed_store: EmbeddedStore, store: ObjectStore, bucket: str, tmp_path: Path
) -> None:
    (member,) = members(seaweed_store, bucket)
    with pytest.raises(DataError, match=f'No S3 objects found under S3 URL "s3://{bucket}/train"'):
        fetch(store, member, tmp_path)
    (member,) = members(seaweed_store, bucket, S3Uri="s3://no-such-bucket-here/train")
    with pytest.raises(DataError) as caught:
        fetch(store, member, tmp_path)
    assert caught.value.cause is FailureCause.USER_INPUT
    assert "s3://no-such-bucket-here/train" in caught.value.message


def test_cancelling_ends_a_download_and_leaves_no_half_file(
    seaweed_store: EmbeddedStore, client: Any, bucket: str, tmp_path: Path
) -> None:
    client.put_object(Bucket=bucket, Key="train/big", Body=bytes(30 << 20))
    flag = Cancellation()
    store = ObjectStore(access_to(seaweed_store), flag)
    (member,) = members(seaweed_store, bucket)
    (channel,) = channels(member)
    directory = tmp_path / "data"

    def progress(done: int, total: int) -> None:
        if done > 1 << 20:
            flag.cancel()

    with pytest.raises(Cancelled):
        download_channel(store, channel, directory, tmp_path / "state", progress, lambda note: None)
    assert list(directory.iterdir()) == []


def put_archive(client: Any, bucket: str, key: str, files: dict[str, bytes]) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    client.put_object(Bucket=bucket, Key=key, Body=content.getvalue())


def job_with_code(store: EmbeddedStore, bucket: str, uri: str, program: str = "train.py") -> Assignment:
    parameters = {"sagemaker_program": f'"{program}"', "sagemaker_submit_directory": f'"{uri}"'}
    return gang(access_to(store), bucket, HyperParameters=parameters)[0]


def prepared(tmp_path: Path) -> InstanceLayout:
    layout = InstanceLayout(tmp_path / "job")
    layout.create()
    return layout


def test_code_in_a_sub_folder_is_found(
    seaweed_store: EmbeddedStore, store: ObjectStore, client: Any, bucket: str, tmp_path: Path
) -> None:
    put_archive(client, bucket, "c/sourcedir.tar.gz", {"sub/train.py": b"x", "README": b"y"})
    layout = prepared(tmp_path)
    job = job_with_code(seaweed_store, bucket, f"s3://{bucket}/c/sourcedir.tar.gz", "sub/train.py")
    fetch_code(store, job, layout, lambda note: None)
    fetch_code(store, job, layout, lambda note: None)
    check_entry_point(job, layout)
    assert (layout.code / "sub" / "train.py").read_bytes() == b"x"
    job = job_with_code(seaweed_store, bucket, f"s3://{bucket}/c/sourcedir.tar.gz", "train.py")
    with pytest.raises(DataError, match=r"train\.py is not in the source directory; .*: README, sub/"):
        check_entry_point(job, layout)


@pytest.mark.parametrize(
    ("key", "why"),
    [("dir/", "is a folder"), ("dir", "does not end in"), ("none.tar.gz", "does not exist"), ("x.zip", "does not end")],
)
def test_a_source_that_is_no_archive_is_named_at_once(
    seaweed_store: EmbeddedStore, store: ObjectStore, client: Any, bucket: str, tmp_path: Path, key: str, why: str
) -> None:
    client.put_object(Bucket=bucket, Key="dir/train.py", Body=b"x")
    uri = f"s3://{bucket}/{key}"
    with pytest.raises(DataError, match=why) as caught:
        fetch_code(store, job_with_code(seaweed_store, bucket, uri), prepared(tmp_path), lambda note: None)
    assert uri in caught.value.message
    assert "tar.gz" in caught.value.message
    assert caught.value.cause is FailureCause.USER_INPUT


def upload_of(store: ObjectStore, notes: list[str]) -> Upload:
    return Upload(store, notes.append, lambda text: None, lambda label, size: None)


def fill(layout: InstanceLayout, host: str) -> None:
    (layout.model / "own").mkdir(parents=True, exist_ok=True)
    (layout.model / "own" / f"{host}.bin").write_bytes(host.encode())
    (layout.model / "same.bin").write_bytes(f"of {host}".encode())
    (layout.model / "link").symlink_to("same.bin")
    (layout.model / "leak").symlink_to("/etc/passwd")
    (layout.model / "empty").mkdir(exist_ok=True)
    os.mkfifo(layout.model / "fifo")


def test_parts_are_merged_into_one_archive_and_deleted(
    store: ObjectStore, client: Any, bucket: str, tmp_path: Path
) -> None:
    lead, other = (InstanceLayout(tmp_path / name) for name in ("algo-1", "algo-2"))
    notes: list[str] = []
    for layout in (lead, other):
        layout.create()
        fill(layout, layout.root.name)
    (other.output_data / "log.txt").write_text("from 2")
    parts = upload_parts(upload_of(store, notes), other.ml, f"s3://{bucket}/j/parts", "algo-2")
    assert parts == [f"s3://{bucket}/j/parts/algo-2/model.tar", f"s3://{bucket}/j/parts/algo-2/output.tar"]
    for _ in range(1):
        assemble(upload_of(store, notes), lead.ml, f"s3://{bucket}/j/output", "GZIP", parts, True)
    keys = [item["Key"] for item in client.list_objects_v2(Bucket=bucket, Prefix="j/")["Contents"]]
    assert keys == ["j/output/model.tar.gz", "j/output/output.tar.gz"]
    content = client.get_object(Bucket=bucket, Key="j/output/model.tar.gz")["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
        names = tar.getnames()
        assert sorted(names) == ["empty", "link", "own", "own/algo-1.bin", "own/algo-2.bin", "same.bin"]
        same = tar.extractfile("same.bin")
        assert same is not None
        assert same.read() == b"of algo-1"
        assert tar.getmember("link").linkname == "same.bin"
    assert any("leak" in note for note in notes)
    assert any("fifo" in note for note in notes)
    assert any("same.bin was written by more than one host" in note for note in notes)


def test_uncompressed_output_is_a_tree(store: ObjectStore, client: Any, bucket: str, tmp_path: Path) -> None:
    lead, other = (InstanceLayout(tmp_path / name) for name in ("algo-1", "algo-2"))
    notes: list[str] = []
    for layout in (lead, other):
        layout.create()
        fill(layout, layout.root.name)
    parts = upload_parts(upload_of(store, notes), other.ml, f"s3://{bucket}/j/parts", "algo-2")
    assemble(upload_of(store, notes), lead.ml, f"s3://{bucket}/j/output", "NONE", parts, True)
    keys = [item["Key"] for item in client.list_objects_v2(Bucket=bucket, Prefix="j/")["Contents"]]
    below = "j/output/model/"
    assert keys == [f"{below}{name}" for name in ("link", "own/algo-1.bin", "own/algo-2.bin", "same.bin")]
    assert client.get_object(Bucket=bucket, Key=below + "link")["Body"].read() == b"of algo-1"
    assert client.get_object(Bucket=bucket, Key=below + "own/algo-2.bin")["Body"].read() == b"algo-2"


def test_a_large_model_is_streamed_in_parts(store: ObjectStore, client: Any, bucket: str, tmp_path: Path) -> None:
    layout = InstanceLayout(tmp_path / "job")
    layout.create()
    content = random.Random(2).randbytes(40 << 20)
    (layout.model / "weights.bin").write_bytes(content)
    assemble(upload_of(store, []), layout.ml, f"s3://{bucket}/j/output", "GZIP", [], True)
    head = client.head_object(Bucket=bucket, Key="j/output/model.tar.gz")
    assert head["ETag"].strip('"').count("-") == 1, "the archive was uploaded in several parts"
    body = client.get_object(Bucket=bucket, Key="j/output/model.tar.gz")["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body), mode="r:gz") as tar:
        file = tar.extractfile("weights.bin")
        assert file is not None
        assert hashlib.sha256(file.read()).digest() == hashlib.sha256(content).digest()


def test_an_empty_model_gives_an_archive_only_on_success(
    store: ObjectStore, client: Any, bucket: str, tmp_path: Path
) -> None:
    layout = prepared(tmp_path)
    assemble(upload_of(store, []), layout.ml, f"s3://{bucket}/j/output", "GZIP", [], False)
    assert client.list_objects_v2(Bucket=bucket, Prefix="j/")["KeyCount"] == 0
    assemble(upload_of(store, []), layout.ml, f"s3://{bucket}/j/output", "GZIP", [], True)
    body = client.get_object(Bucket=bucket, Key="j/output/model.tar.gz")["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body), mode="r:gz") as tar:
        assert tar.getnames() == []
