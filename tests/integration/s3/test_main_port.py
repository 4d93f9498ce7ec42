"""S3 on the main port: an unmodified boto3 that was told nothing but AWS_ENDPOINT_URL."""

from __future__ import annotations

import concurrent.futures
import hashlib
import io
import os
import statistics
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import psutil
import pytest
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError

from tests.support.api_process import ApiProcess
from tests.support.gateway import ACCOUNT, REGION, GatewayUnderTest
from tests.support.s3_raw import plain

MIB = 1024 * 1024
ODD_KEYS = [
    "plain.txt",
    "with space/and+plus&amp=1?x#y",
    "per%20cent%2Fescaped",
    "Ünïcödé/日本語/🚂",
    "quotes'\"()[]{}!*@:;,$=~^|<>`",
    "trailing./..dots/...three",
    "v1/training-jobs",
    "healthz",
]
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@pytest.fixture(scope="module")
def api(gateway: GatewayUnderTest) -> Iterator[ApiProcess]:
    process = ApiProcess(gateway.home, gateway_port=gateway.port, account_id=ACCOUNT)
    process.start()
    yield process
    process.stop()


@pytest.fixture
def s3(api: ApiProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    admin = api.bootstrap.admin
    monkeypatch.setenv("AWS_ENDPOINT_URL", api.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", admin.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", admin.secret_access_key)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return boto3.session.Session().client("s3")


@pytest.mark.parametrize("key", ODD_KEYS)
def test_objects_under_odd_keys(s3: Any, bucket: str, key: str) -> None:
    body = key.encode() * 100
    made = s3.put_object(Bucket=bucket, Key=key, Body=body, Metadata={"origin": "main-port"})
    assert made["ETag"] == f'"{hashlib.md5(body).hexdigest()}"'
    got = s3.get_object(Bucket=bucket, Key=key)
    assert (got["Body"].read(), got["Metadata"]) == (body, {"origin": "main-port"})
    assert s3.head_object(Bucket=bucket, Key=key)["ContentLength"] == len(body)
    assert s3.get_object(Bucket=bucket, Key=key, Range="bytes=3-7")["Body"].read() == body[3:8]
    url = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": key})
    with _DIRECT.open(url) as answer:
        assert answer.read() == body
    assert [o["Key"] for o in s3.list_objects_v2(Bucket=bucket)["Contents"]] == [key]
    s3.delete_object(Bucket=bucket, Key=key)
    with pytest.raises(ClientError) as error:
        s3.head_object(Bucket=bucket, Key=key)
    assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 404


def test_listing_in_pages(s3: Any, bucket: str) -> None:
    keys = sorted(f"run {n % 3}/part-{n:02}" for n in range(25))
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=b"")
    pages = list(s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, PaginationConfig={"PageSize": 7}))
    assert [len(page["Contents"]) for page in pages] == [7, 7, 7, 4]
    assert [o["Key"] for page in pages for o in page["Contents"]] == keys
    folders = s3.list_objects_v2(Bucket=bucket, Delimiter="/")["CommonPrefixes"]
    assert [f["Prefix"] for f in folders] == ["run 0/", "run 1/", "run 2/"]
    gone = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys]})
    assert len(gone["Deleted"]) == len(keys)


def test_multipart_upload(s3: Any, bucket: str) -> None:
    data = os.urandom(12 * MIB + 5)
    s3.upload_fileobj(io.BytesIO(data), bucket, "big file", Config=TransferConfig(multipart_threshold=5 * MIB))
    back = io.BytesIO()
    s3.download_fileobj(bucket, "big file", back)
    assert back.getvalue() == data
    assert s3.head_object(Bucket=bucket, Key="big file")["ETag"].endswith('-2"')


def test_wrong_keys_get_the_gateways_own_words(api: ApiProcess, s3: Any, bucket: str) -> None:
    stranger = boto3.session.Session().client("s3", aws_access_key_id="AKIAUNKNOWN", aws_secret_access_key="x" * 40)
    with pytest.raises(ClientError) as error:
        stranger.get_object(Bucket=bucket, Key="k")
    assert error.value.response["Error"]["Code"] == "InvalidAccessKeyId"
    assert plain("PUT", api.url, f"/{bucket}/k", b"anonymous").status in (400, 403)


def test_streams_take_little_memory_and_leave_the_api_answering(api: ApiProcess, s3: Any, bucket: str) -> None:
    assert api.process is not None
    process = psutil.Process(api.process.pid)

    def ask() -> float:
        started = time.perf_counter()
        with _DIRECT.open(f"{api.url}/healthz", timeout=30) as answer:
            assert answer.status == 200
        return time.perf_counter() - started

    size, streams = 24 * MIB, 4
    block = os.urandom(size)
    s3.put_object(Bucket=bucket, Key="warm", Body=b"w")
    idle = [ask() for _ in range(20)]
    before = process.memory_info().rss
    peaks: list[int] = []
    busy: list[float] = []
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            peaks.append(process.memory_info().rss)
            busy.append(ask())

    whole = TransferConfig(multipart_threshold=1 << 40, use_threads=False)

    def both_ways(number: int) -> bool:
        s3.upload_fileobj(io.BytesIO(block), bucket, f"s/{number}", Config=whole)
        return bool(s3.get_object(Bucket=bucket, Key=f"s/{number}")["Body"].read() == block)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with concurrent.futures.ThreadPoolExecutor(streams) as pool:
            assert all(pool.map(both_ways, range(streams)))
    finally:
        done.set()
        watcher.join()
    assert len(busy) >= 5
    assert (max(peaks) - before) / MIB < 48, "a body was held in memory"
    assert statistics.median(busy) < 10 * statistics.median(idle) + 0.25
