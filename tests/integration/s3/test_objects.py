"""Real boto3 against the real gateway and store: objects, encryption, copies, listings."""

from __future__ import annotations

import concurrent.futures
import gzip
import io
import os
from typing import Any

import pytest
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError

from tests.support.gateway import ACCOUNT, GatewayUnderTest
from tests.support.seaweed import s3_client
from trainshed_service.embedded.store import EmbeddedStore

PARTS = TransferConfig(multipart_threshold=6 * 1024 * 1024, multipart_chunksize=5 * 1024 * 1024)


def code(error: pytest.ExceptionInfo[ClientError]) -> str:
    return str(error.value.response["Error"]["Code"])


@pytest.mark.parametrize("algorithm", [None, "AES256", "aws:kms", "aws:kms:dsse"])
def test_put_head_get_with_each_encryption(
    gateway: GatewayUnderTest, seaweed_store: EmbeddedStore, bucket: str, algorithm: str | None
) -> None:
    s3 = gateway.client()
    data = os.urandom(300_000)
    extra = {"ServerSideEncryption": algorithm} if algorithm else {}
    put = s3.put_object(Bucket=bucket, Key="k", Body=data, Metadata={"mine": "yes"}, **extra)
    head = s3.head_object(Bucket=bucket, Key="k")
    got = s3.get_object(Bucket=bucket, Key="k")
    expected = algorithm or "AES256"
    assert {answer["ServerSideEncryption"] for answer in (put, head, got)} == {expected}
    assert got["Body"].read() == data
    assert head["Metadata"] == {"mine": "yes"}
    assert head["ContentType"] == "binary/octet-stream"
    for start, end in ((0, 0), (5, 99_999), (299_990, 299_999)):
        part = s3.get_object(Bucket=bucket, Key="k", Range=f"bytes={start}-{end}")
        assert part["ContentRange"] == f"bytes {start}-{end}/300000"
        assert part["Body"].read() == data[start : end + 1]
    # Really encrypted by the store, not only said to be.
    assert s3_client(seaweed_store).head_object(Bucket=bucket, Key="k")["ServerSideEncryption"] == "AES256"


def test_kms_key_id_is_echoed(gateway: GatewayUnderTest, bucket: str) -> None:
    s3 = gateway.client()
    s3.put_object(Bucket=bucket, Key="k", Body=b"1", ServerSideEncryption="aws:kms", SSEKMSKeyId="my-key")
    assert s3.head_object(Bucket=bucket, Key="k")["SSEKMSKeyId"] == "my-key"


@pytest.mark.parametrize("algorithm", ["AES256", "aws:kms"])
def test_multipart_and_copies_with_encryption(gateway: GatewayUnderTest, bucket: str, algorithm: str) -> None:
    s3 = gateway.client()
    data = os.urandom(13 * 1024 * 1024)
    extra = {"ServerSideEncryption": algorithm}
    s3.upload_fileobj(io.BytesIO(data), bucket, "big", ExtraArgs=extra, Config=PARTS)
    s3.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": "big"}, **extra)
    s3.copy({"Bucket": bucket, "Key": "big"}, bucket, "parts", ExtraArgs=extra, Config=PARTS)
    for key in ("big", "copy", "parts"):
        sink = io.BytesIO()
        s3.download_fileobj(bucket, key, sink, Config=PARTS)
        assert sink.getvalue() == data, key
        assert s3.head_object(Bucket=bucket, Key=key)["ServerSideEncryption"] == algorithm


def test_answers_during_a_multipart_upload(gateway: GatewayUnderTest, bucket: str) -> None:
    s3 = gateway.client()
    created = s3.create_multipart_upload(Bucket=bucket, Key="k", ServerSideEncryption="aws:kms")
    upload = {"Bucket": bucket, "Key": "k", "UploadId": created["UploadId"]}
    part = s3.upload_part(**upload, PartNumber=1, Body=b"x" * 100)
    assert [p["ETag"] for p in s3.list_parts(**upload)["Parts"]] == [part["ETag"]]
    done = s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]})
    assert {answer["ServerSideEncryption"] for answer in (created, part, done)} == {"aws:kms"}
    other = s3.create_multipart_upload(Bucket=bucket, Key="other")
    s3.abort_multipart_upload(Bucket=bucket, Key="other", UploadId=other["UploadId"])
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket)


@pytest.mark.parametrize(
    "key",
    ["a b", "ünï/日本語", "a+b", "100%", "a%20b", "q?x=1&y", "#frag", "semi;colon,comma", "~t/@:!$'()*"],
)
def test_odd_keys(gateway: GatewayUnderTest, bucket: str, key: str) -> None:
    s3 = gateway.client()
    s3.put_object(Bucket=bucket, Key=key, Body=key.encode(), Tagging="a=b")
    assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == key.encode()
    assert [o["Key"] for o in s3.list_objects_v2(Bucket=bucket)["Contents"]] == [key]
    assert [o["Key"] for o in s3.list_objects_v2(Bucket=bucket, Prefix=key)["Contents"]] == [key]
    s3.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": key})
    assert s3.get_object(Bucket=bucket, Key="copy")["Body"].read() == key.encode()
    s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key}, {"Key": "copy"}]})
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_folder_markers(gateway: GatewayUnderTest, bucket: str) -> None:
    s3 = gateway.client()
    s3.put_object(Bucket=bucket, Key="dir/", Body=b"")
    assert [o["Key"] for o in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["dir/"]
    s3.put_object(Bucket=bucket, Key="k", Body=b"1")
    lossy = (
        lambda: s3.put_object(Bucket=bucket, Key="x/", Body=b"1"),
        lambda: s3.put_object(Bucket=bucket, Key="x\\", Body=b"1"),
        lambda: s3.create_multipart_upload(Bucket=bucket, Key="x/"),
        lambda: s3.copy_object(Bucket=bucket, Key="x/", CopySource={"Bucket": bucket, "Key": "k"}),
    )
    for call in lossy:  # the store would drop the content without a word
        with pytest.raises(ClientError) as error:
            call()
        assert code(error) == "InvalidArgument"


def test_double_slash_is_readable_under_its_name(gateway: GatewayUnderTest, bucket: str) -> None:
    s3 = gateway.client()
    s3.put_object(Bucket=bucket, Key="a//b", Body=b"1")
    assert s3.get_object(Bucket=bucket, Key="a//b")["Body"].read() == b"1"


def test_backslash_is_kept_as_a_slash(gateway: GatewayUnderTest, bucket: str) -> None:
    s3 = gateway.client()
    s3.put_object(Bucket=bucket, Key="a\\b", Body=b"1")
    assert s3.get_object(Bucket=bucket, Key="a\\b")["Body"].read() == b"1"
    assert [o["Key"] for o in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["a/b"]


def test_conditions(gateway: GatewayUnderTest, bucket: str) -> None:
    s3 = gateway.client()
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"1", IfNoneMatch="*")["ETag"]
    with pytest.raises(ClientError) as error:
        s3.put_object(Bucket=bucket, Key="k", Body=b"2" * 200_000, IfNoneMatch="*")
    assert code(error) == "PreconditionFailed"
    with pytest.raises(ClientError) as error:
        s3.get_object(Bucket=bucket, Key="k", IfNoneMatch=etag)
    assert code(error) == "304"
    assert s3.get_object(Bucket=bucket, Key="k", IfMatch=etag)["Body"].read() == b"1"


def test_listing_pages_and_delimiters(gateway: GatewayUnderTest, bucket: str) -> None:
    s3 = gateway.client()
    keys = sorted([f"p/{n:02}" for n in range(12)] + ["p/sub/x", "z"])
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda key: s3.put_object(Bucket=bucket, Key=key, Body=b""), keys))
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, PaginationConfig={"PageSize": 5})
    assert [o["Key"] for page in pages for o in page["Contents"]] == keys
    top = s3.list_objects_v2(Bucket=bucket, Delimiter="/")
    assert [p["Prefix"] for p in top["CommonPrefixes"]] == ["p/"] and [o["Key"] for o in top["Contents"]] == ["z"]


def test_buckets(gateway: GatewayUnderTest, bucket: str) -> None:
    s3 = gateway.client()
    assert s3.head_bucket(Bucket=bucket)["BucketRegion"] == "us-east-1"
    assert s3.get_bucket_location(Bucket=bucket)["LocationConstraint"] is None
    assert bucket in [b["Name"] for b in s3.list_buckets()["Buckets"]]
    with pytest.raises(ClientError) as error:
        s3.head_bucket(Bucket=bucket + "-absent")
    assert code(error) == "404"
    with pytest.raises(ClientError) as error:
        s3.put_object(Bucket=bucket + "-absent", Key="k", Body=b"1" * 300_000)
    assert code(error) == "NoSuchBucket"
    s3.put_object(Bucket=bucket, Key="k", Body=b"1")
    with pytest.raises(ClientError) as error:
        s3.delete_bucket(Bucket=bucket)
    assert code(error) == "BucketNotEmpty"
    with pytest.raises(ClientError) as error:
        s3.create_bucket(Bucket=bucket + "-eu", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    assert code(error) == "IllegalLocationConstraintException"
    s3.create_bucket(Bucket=bucket + "-here", CreateBucketConfiguration={"LocationConstraint": "us-east-1"})
    s3.delete_bucket(Bucket=bucket + "-here")


def test_expected_owner(gateway: GatewayUnderTest, bucket: str) -> None:
    s3 = gateway.client()
    s3.put_object(Bucket=bucket, Key="k", Body=b"1", ExpectedBucketOwner=ACCOUNT)
    for call in (s3.head_bucket, s3.list_objects_v2):
        with pytest.raises(ClientError) as error:
            call(Bucket=bucket, ExpectedBucketOwner="999999999999")
        assert code(error) in ("403", "AccessDenied")


def test_wrong_checksum_stores_nothing(gateway: GatewayUnderTest, bucket: str) -> None:
    s3 = gateway.client()
    s3.put_object(Bucket=bucket, Key="good", Body=b"1" * 100_000, ChecksumAlgorithm="SHA256")
    for extra in ({"ChecksumCRC32": "AAAAAA=="}, {"ContentMD5": "1B2M2Y8AsgTpgAmY7PhCfg=="}):
        with pytest.raises(ClientError) as error:
            s3.put_object(Bucket=bucket, Key="bad", Body=b"1" * 100_000, **extra)
        assert code(error) == "BadDigest"
    assert [o["Key"] for o in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["good"]


def test_many_objects_at_once(gateway: GatewayUnderTest, bucket: str) -> None:
    s3 = gateway.client(max_pool_connections=32)
    bodies = {f"k{n}": os.urandom(1024 * 1024) for n in range(32)}

    def round_trip(item: tuple[str, bytes]) -> bool:
        key, body = item
        s3.put_object(Bucket=bucket, Key=key, Body=body)
        return bool(s3.get_object(Bucket=bucket, Key=key)["Body"].read() == body)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert all(pool.map(round_trip, bodies.items()))


class Unseekable(io.RawIOBase):
    def __init__(self, data: bytes) -> None:
        self._inner = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._inner.readinto(buffer)


def test_stream_without_length_and_gzip_content(gateway: GatewayUnderTest, bucket: str) -> None:
    s3 = gateway.client()
    s3.upload_fileobj(Unseekable(b"y" * 200_000), bucket, "stream")
    assert s3.head_object(Bucket=bucket, Key="stream")["ContentLength"] == 200_000
    packed = gzip.compress(b"text" * 1000)
    s3.put_object(Bucket=bucket, Key="z", Body=packed, ContentEncoding="gzip", ContentType="text/plain")
    got = s3.get_object(Bucket=bucket, Key="z")
    assert (got["Body"].read(), got["ContentEncoding"], got["ContentType"]) == (packed, "gzip", "text/plain")
