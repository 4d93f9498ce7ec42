"""kill -9 of the store or of the gateway under load loses no acknowledged object, and clients come through."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from tests.support.gateway import running_gateway
from tests.support.seaweed import fresh_bucket
from tests.support.wait import wait_until
from trainshed_service.embedded.store import EmbeddedStore, StoreError

MakeStore = Callable[..., EmbeddedStore]


class Writers:
    """Threads that put objects until told to stop, and note what was acknowledged."""

    def __init__(self, client: Callable[[], Any], bucket: str, threads: int = 4) -> None:
        self.acknowledged: dict[str, str] = {}
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._write, args=(client(), bucket, number)) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def _write(self, s3: Any, bucket: str, number: int) -> None:
        turn = 0
        while not self._stop.is_set():
            key, body = f"w{number}/{turn}", os.urandom(150_000 if turn % 3 == 0 else 2_000)
            turn += 1
            try:
                s3.put_object(Bucket=bucket, Key=key, Body=body, ServerSideEncryption="aws:kms")
            except (ClientError, BotoCoreError):
                self._stop.wait(0.05)
                continue
            self.acknowledged[key] = hashlib.sha256(body).hexdigest()

    def more(self, count: int) -> None:
        """Return when `count` more objects were acknowledged."""
        goal = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= goal, timeout=60, what=f"{count} more objects")

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.parametrize("victim", ["store", "gateway"])
def test_kill_under_load_loses_nothing(make_store: MakeStore, tmp_path: Path, victim: str) -> None:
    store = make_store()
    bucket = fresh_bucket(store)
    with running_gateway(store, tmp_path / "gateway") as gateway:
        writers = Writers(lambda: gateway.client(retries={"total_max_attempts": 1}), bucket)
        try:
            for _ in range(2):
                writers.more(20)
                if victim == "store":
                    store.kill()
                    store.start()
                else:
                    gateway.kill()
                    gateway.start()
            writers.more(20)
        finally:
            writers.stop()
        s3 = gateway.client()
        for key, digest in writers.acknowledged.items():
            body = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
            assert hashlib.sha256(body).hexdigest() == digest, key


def test_store_that_is_away_is_a_503_and_comes_back(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store()
    bucket = fresh_bucket(store)
    with running_gateway(store, tmp_path / "gateway") as gateway:
        once = gateway.client(retries={"total_max_attempts": 1})
        once.put_object(Bucket=bucket, Key="k", Body=b"1")
        store.kill()
        with pytest.raises(ClientError) as error:
            once.get_object(Bucket=bucket, Key="k")
        assert error.value.response["Error"]["Code"] == "SlowDown"
        assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
        store.start()
        assert gateway.client().get_object(Bucket=bucket, Key="k")["Body"].read() == b"1"


def test_watched_store_is_started_again(make_store: MakeStore) -> None:
    store = make_store()
    came_back = threading.Event()
    store.supervise(lambda _endpoint: came_back.set())
    first, ports = store.pid, store.ports
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert came_back.wait(60)
    assert store.pid not in (None, first) and store.ports == ports


def test_one_owner_and_orphans(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store(tmp_path / "home")
    with pytest.raises(StoreError, match="in use"):
        make_store(tmp_path / "home")
    # As if the owner had been killed: the lock is gone, the process is not.
    orphan = store.pid
    assert orphan is not None and store._lock_fd is not None
    os.close(store._lock_fd)
    store._lock_fd = None
    heir = make_store(tmp_path / "home")
    assert heir.pid not in (None, orphan)
    wait_until(lambda: store.pid is None, what="the orphan ended")


def test_nothing_is_left_outside_the_home(make_store: MakeStore, tmp_path: Path) -> None:
    home = tmp_path / ("deep and with spaces " + "x" * 90)
    store = make_store(home)
    ports = (store.ports.master_grpc, store.ports.volume_grpc, store.ports.filer_grpc, store.ports.s3_grpc)
    for name in ("sse.kek", "s3.json"):
        assert (home / "store" / name).stat().st_mode & 0o777 == 0o600
    store.stop()
    left = [path for port in ports for path in Path("/tmp").glob(f"seaweedfs-*-grpc-{port}.sock")]
    assert left == []
    (home / "store" / "sse.kek").unlink()
    with pytest.raises(StoreError, match=r"sse\.kek is missing"):
        store.start()
