"""Checkpoints against a real store: restore, changes, deletions, files that change or vanish while they are read."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_gang import access_to
from tests.support.seaweed import fresh_bucket, s3_client
from trainshed_service.embedded.store import EmbeddedStore
from trainshed_worker.data import CheckpointSync, DataError, ObjectStore


@pytest.fixture
def bucket(seaweed_store: EmbeddedStore) -> str:
    return fresh_bucket(seaweed_store)


@pytest.fixture
def client(seaweed_store: EmbeddedStore) -> Any:
    return s3_client(seaweed_store)


def sync_of(store: EmbeddedStore, bucket: str, root: Path, **options: Any) -> CheckpointSync:
    (root / "ml" / "checkpoints").mkdir(parents=True, exist_ok=True)
    target = ObjectStore(access_to(store), stall_seconds=options.pop("stall_seconds", 10))
    return CheckpointSync(target, f"s3://{bucket}/ck", root / "ml", "checkpoints", root / "state", **options)


def remote(client: Any, bucket: str) -> dict[str, bytes]:
    listed = client.list_objects_v2(Bucket=bucket, Prefix="ck/").get("Contents", [])
    return {
        item["Key"][len("ck/") :]: client.get_object(Bucket=bucket, Key=item["Key"])["Body"].read() for item in listed
    }


def local(root: Path) -> dict[str, bytes]:
    base = root / "ml" / "checkpoints"
    return {str(path.relative_to(base)): path.read_bytes() for path in base.rglob("*") if path.is_file()}


def test_restore_change_delete(seaweed_store: EmbeddedStore, client: Any, bucket: str, tmp_path: Path) -> None:
    client.put_object(Bucket=bucket, Key="ck/a/1.pt", Body=b"one")
    client.put_object(Bucket=bucket, Key="ck/2.pt", Body=b"two")
    client.put_object(Bucket=bucket, Key="ckpt-of-another/x", Body=b"not ours")
    sync = sync_of(seaweed_store, bucket, tmp_path)
    sync.restore(lambda done, total: None, lambda note: None)
    assert local(tmp_path) == {"a/1.pt": b"one", "2.pt": b"two"}
    assert sync.sync_once() == (0, 0)

    base = tmp_path / "ml" / "checkpoints"
    (base / "2.pt").unlink()
    (base / "3.pt").write_bytes(b"three")
    client.put_object(Bucket=bucket, Key="ck/later", Body=b"put there by someone else")
    again = sync_of(seaweed_store, bucket, tmp_path)  # as after a restart of the agent
    assert again.sync_once(final=True) == (1, 1)
    assert remote(client, bucket) == {"a/1.pt": b"one", "3.pt": b"three", "later": b"put there by someone else"}


def test_an_empty_prefix_is_a_first_start(seaweed_store: EmbeddedStore, bucket: str, tmp_path: Path) -> None:
    sync = sync_of(seaweed_store, bucket, tmp_path)
    assert sync.restore(lambda done, total: None, lambda note: None) == 0


def test_links_are_not_followed(seaweed_store: EmbeddedStore, client: Any, bucket: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("of the node")
    sync = sync_of(seaweed_store, bucket, tmp_path)
    base = tmp_path / "ml" / "checkpoints"
    (base / "file").symlink_to(secret / "key")
    (base / "folder").symlink_to(secret)
    assert sync.sync_once(final=True) == (0, 0)
    base.rename(tmp_path / "ml" / "moved")
    base.symlink_to(secret)
    assert sync.sync_once(final=True) == (0, 0)
    assert remote(client, bucket) == {}


def test_a_busy_writer_never_fails_the_sync(
    seaweed_store: EmbeddedStore, client: Any, bucket: str, tmp_path: Path
) -> None:
    sync = sync_of(seaweed_store, bucket, tmp_path)
    base = tmp_path / "ml" / "checkpoints"
    done = threading.Event()

    def write() -> None:
        number = 0
        while not done.wait(0.002):
            number += 1
            temporary = base / f"tmp-{number}"
            temporary.write_bytes(os.urandom(2000))
            temporary.rename(base / f"step-{number % 5}.pt")
            with (base / "log.txt").open("ab") as log:
                log.write(b"line\n")
            if number % 7 == 0:
                (base / f"step-{number % 5}.pt").unlink()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        rounds = [sync.sync_once() for _ in range(12)]
    finally:
        done.set()
        writer.join()
    assert len(rounds) == 12
    sync.sync_once(final=True)
    assert remote(client, bucket) == local(tmp_path)


def test_a_store_that_refuses_is_named(seaweed_store: EmbeddedStore, tmp_path: Path) -> None:
    sync = sync_of(seaweed_store, "no-such-bucket-at-all", tmp_path)
    (tmp_path / "ml" / "checkpoints" / "a").write_text("x")
    with pytest.raises(DataError, match="s3://no-such-bucket-at-all/ck/a"):
        sync.sync_once(final=True)
