"""Who may do what: signatures, presigned URLs, job credentials, revocation; everything over real sockets."""

from __future__ import annotations

import hashlib
import time
import urllib.parse
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.support.gateway import REGION, GatewayUnderTest
from tests.support.s3_raw import plain, send, signed_headers
from tests.support.signing_times import other_time_of_that_day
from tests.support.wait import wait_until
from trainshed_service.identity import Credentials


def refused(call: Callable[[], Any]) -> str:
    """The error code of a call that must fail."""
    with pytest.raises(ClientError) as error:
        call()
    return str(error.value.response["Error"]["Code"])


def presigned(gateway: GatewayUnderTest, version: str, method: str, bucket: str, who: Credentials | None = None) -> str:
    client = gateway.client(who, signature_version=version)
    return str(client.generate_presigned_url(method, Params={"Bucket": bucket, "Key": "a b+c"}, ExpiresIn=60))


def path_of(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    return f"{parts.path}?{parts.query}"


@pytest.mark.parametrize("version", ["s3v4", "s3"])
def test_presigned_put_and_get(gateway: GatewayUnderTest, bucket: str, version: str) -> None:
    put = path_of(presigned(gateway, version, "put_object", bucket))
    assert plain("PUT", gateway.endpoint, put, b"hello").status == 200
    get = path_of(presigned(gateway, version, "get_object", bucket))
    assert plain("GET", gateway.endpoint, get).body == b"hello"
    assert plain("GET", gateway.endpoint, get, headers={"Range": "bytes=1-2"}).body == b"el"
    assert plain("GET", gateway.endpoint, get.replace("a%20b", "a%20c")).code == "SignatureDoesNotMatch"
    assert plain("DELETE", gateway.endpoint, get).code == "SignatureDoesNotMatch"


@pytest.mark.parametrize("version", ["s3v4", "s3"])
def test_presigned_with_job_credentials(gateway: GatewayUnderTest, bucket: str, version: str) -> None:
    who = gateway.job_credentials(f"att-{bucket}", write=[(bucket, "a")])
    url = path_of(presigned(gateway, version, "put_object", bucket, who))
    assert plain("PUT", gateway.endpoint, url, b"x").status == 200
    other = gateway.job_credentials(f"att2-{bucket}", write=[(bucket, "b")])
    url = path_of(presigned(gateway, version, "put_object", bucket, other))
    assert plain("PUT", gateway.endpoint, url, b"x").code == "AccessDenied"


def test_expired_presigned_url(gateway: GatewayUnderTest, bucket: str) -> None:
    client = gateway.client(signature_version="s3v4")
    url = path_of(client.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "k"}, ExpiresIn=1))
    answer = wait_until(
        lambda: (a := plain("GET", gateway.endpoint, url)).code != "NoSuchKey" and a, what="the URL runs out"
    )
    assert (answer.status, answer.code) == (403, "AccessDenied")


def test_response_overrides_in_a_presigned_url(gateway: GatewayUnderTest, bucket: str) -> None:
    gateway.client().put_object(Bucket=bucket, Key="k", Body=b"1")
    client = gateway.client(signature_version="s3v4")
    params = {"Bucket": bucket, "Key": "k", "ResponseContentType": "text/x-mine"}
    answer = plain("GET", gateway.endpoint, path_of(client.generate_presigned_url("get_object", Params=params)))
    assert (answer.status, answer.headers["content-type"]) == (200, "text/x-mine")


def test_wrong_keys_and_signatures(gateway: GatewayUnderTest, bucket: str) -> None:
    wrong = Credentials(gateway.admin.access_key_id, "not the secret")
    unknown = Credentials("AKIAAAAAAAAAAAAAAAAA", "x")
    assert refused(lambda: gateway.client(wrong).list_objects_v2(Bucket=bucket)) == "SignatureDoesNotMatch"
    assert refused(lambda: gateway.client(unknown).list_objects_v2(Bucket=bucket)) == "InvalidAccessKeyId"
    assert plain("GET", gateway.endpoint, f"/{bucket}").code == "AccessDenied"
    assert plain("PUT", gateway.endpoint, f"/{bucket}/k", b"x" * 1000).code == "AccessDenied"


def test_skewed_clock(gateway: GatewayUnderTest, bucket: str) -> None:
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    skewed = {"X-Amz-Date": other_time_of_that_day(now, 1200)}
    answer = send(gateway.admin, "GET", gateway.endpoint, f"/{bucket}", altered=skewed)
    assert (answer.status, answer.code) == (403, "RequestTimeTooSkewed")


def test_header_that_was_not_signed_is_refused(gateway: GatewayUnderTest, bucket: str) -> None:
    altered = {"x-amz-copy-source": f"/{bucket}/secret"}
    answer = send(gateway.admin, "PUT", gateway.endpoint, f"/{bucket}/k", b"", altered=altered)
    assert answer.code == "AccessDenied"


@pytest.mark.parametrize("size", [10, 500_000])
def test_body_with_another_hash_stores_nothing(gateway: GatewayUnderTest, bucket: str, size: int) -> None:
    stated = hashlib.sha256(b"another body").hexdigest()
    answer = send(gateway.admin, "PUT", gateway.endpoint, f"/{bucket}/k", b"x" * size, payload=stated)
    assert (answer.status, answer.code) == (400, "XAmzContentSHA256Mismatch")
    assert "Contents" not in gateway.client().list_objects_v2(Bucket=bucket)


def test_host_as_the_client_sent_it(gateway: GatewayUnderTest, bucket: str) -> None:
    """Behind a proxy or a forwarder the Host header names another address than the gateway's own."""
    headers = signed_headers(gateway.admin, "GET", f"http://algo-1:9999/{bucket}", hashlib.sha256(b"").hexdigest())
    headers["Host"] = "algo-1:9999"
    assert plain("GET", gateway.endpoint, f"/{bucket}", headers=headers).status == 200


def test_virtual_host_style(gateway: GatewayUnderTest, bucket: str) -> None:
    host = f"{bucket}.localhost:{gateway.port}"
    headers = signed_headers(gateway.admin, "GET", f"http://{host}/", hashlib.sha256(b"").hexdigest())
    answer = plain("GET", gateway.endpoint, "/", headers=headers | {"Host": host})
    assert answer.status == 200 and b"<ListBucketResult" in answer.body


@pytest.fixture
def job(gateway: GatewayUnderTest, bucket: str) -> Any:
    """A client with the credentials of a job that reads in/ and writes out/."""
    admin = gateway.client()
    for key in ("in/x", "secret/x", "out/old", "in2/x"):
        admin.put_object(Bucket=bucket, Key=key, Body=key.encode())
    who = gateway.job_credentials(f"job-{bucket}", read=[(bucket, "in/")], write=[(bucket, "out/")])
    return gateway.client(who)


def test_what_a_job_may(gateway: GatewayUnderTest, bucket: str, job: Any) -> None:
    assert job.get_object(Bucket=bucket, Key="in/x")["Body"].read() == b"in/x"
    assert job.list_objects_v2(Bucket=bucket, Prefix="in/")["KeyCount"] == 1
    assert job.head_bucket(Bucket=bucket)["ResponseMetadata"]["HTTPStatusCode"] == 200
    job.put_object(Bucket=bucket, Key="out/new", Body=b"1", ServerSideEncryption="aws:kms")
    job.copy_object(Bucket=bucket, Key="out/copy", CopySource={"Bucket": bucket, "Key": "in/x"})
    upload = job.create_multipart_upload(Bucket=bucket, Key="out/parts")["UploadId"]
    ids = {"Bucket": bucket, "Key": "out/parts", "UploadId": upload}
    etag = job.upload_part(**ids, PartNumber=1, Body=b"part")["ETag"]
    job.complete_multipart_upload(**ids, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]})
    doomed = {"Objects": [{"Key": "out/new"}, {"Key": "out/copy"}]}
    assert "Errors" not in job.delete_objects(Bucket=bucket, Delete=doomed)
    job.delete_object(Bucket=bucket, Key="out/old")
    left = [o["Key"] for o in job.list_objects_v2(Bucket=bucket, Prefix="out/")["Contents"]]
    assert left == ["out/parts"]


PROBES: dict[str, Callable[[Any, str], Any]] = {
    "read another prefix": lambda s3, b: s3.get_object(Bucket=b, Key="secret/x"),
    "read a prefix that begins alike": lambda s3, b: s3.get_object(Bucket=b, Key="in2/x"),
    "write where it only reads": lambda s3, b: s3.put_object(Bucket=b, Key="in/y", Body=b"1"),
    "delete where it only reads": lambda s3, b: s3.delete_object(Bucket=b, Key="in/x"),
    "write another prefix": lambda s3, b: s3.put_object(Bucket=b, Key="secret/y", Body=b"1" * 200_000),
    "list all": lambda s3, b: s3.list_objects_v2(Bucket=b),
    "list another prefix": lambda s3, b: s3.list_objects_v2(Bucket=b, Prefix="secret/"),
    "list a prefix that begins alike": lambda s3, b: s3.list_objects(Bucket=b, Prefix="in"),
    "copy from a forbidden source": lambda s3, b: s3.copy_object(
        Bucket=b, Key="out/c", CopySource={"Bucket": b, "Key": "secret/x"}
    ),
    "copy to a forbidden target": lambda s3, b: s3.copy_object(
        Bucket=b, Key="secret/c", CopySource={"Bucket": b, "Key": "in/x"}
    ),
    "delete a forbidden key among others": lambda s3, b: s3.delete_objects(
        Bucket=b, Delete={"Objects": [{"Key": "out/old"}, {"Key": "secret/x"}]}
    ),
    "make a bucket": lambda s3, b: s3.create_bucket(Bucket=b + "-mine"),
    "delete the bucket": lambda s3, b: s3.delete_bucket(Bucket=b),
    "list buckets": lambda s3, b: s3.list_buckets(),
    "list versions": lambda s3, b: s3.list_object_versions(Bucket=b, Prefix="in/"),
    "set a bucket policy": lambda s3, b: s3.put_bucket_policy(Bucket=b, Policy="{}"),
    "publish": lambda s3, b: s3.put_object(Bucket=b, Key="out/p", Body=b"1", ACL="public-read"),
    "upload elsewhere": lambda s3, b: s3.create_multipart_upload(Bucket=b, Key="secret/m"),
    "another bucket": lambda s3, b: s3.list_objects_v2(Bucket="another", Prefix="in/"),
}


@pytest.mark.parametrize("probe", PROBES)
def test_what_a_job_may_not(gateway: GatewayUnderTest, bucket: str, job: Any, probe: str) -> None:
    before = [(o["Key"], o["ETag"]) for o in gateway.client().list_objects_v2(Bucket=bucket)["Contents"]]
    assert refused(lambda: PROBES[probe](job, bucket)) == "AccessDenied"
    after = [(o["Key"], o["ETag"]) for o in gateway.client().list_objects_v2(Bucket=bucket)["Contents"]]
    assert after == before


@pytest.mark.parametrize(
    "path",
    [
        "out/../secret/x",
        "out/%2e%2e/secret/x",
        "%2e%2e/other/x",
        "./secret/x",
        "out%5C..%5Csecret/x",
        "out/..%5Csecret/x",
    ],
)
def test_a_job_cannot_climb_out_of_its_prefix(gateway: GatewayUnderTest, bucket: str, path: str) -> None:
    who = gateway.job_credentials(f"climb-{bucket}", write=[(bucket, "out/")])
    for method, body in (("GET", None), ("PUT", b"x")):
        assert send(who, method, gateway.endpoint, f"/{bucket}/{path}", body).status in (400, 403)
    listing = f"/{bucket}?list-type=2&prefix=out%2F..%2Fsecret%2F"
    assert send(who, "GET", gateway.endpoint, listing).status in (400, 403)
    assert send(who, "PUT", gateway.endpoint, f"/{bucket}/out/c?x-amz-copy-source={bucket}/secret/x").status == 403


def test_session_token_is_needed(gateway: GatewayUnderTest, bucket: str) -> None:
    who = gateway.job_credentials(f"token-{bucket}", write=[(bucket, "out/")])
    for token in (None, "wrong"):
        stripped = Credentials(who.access_key_id, who.secret_access_key, token)
        assert refused(lambda s=stripped: gateway.client(s).put_object(Bucket=bucket, Key="out/x")) == "InvalidToken"


def test_revoked_and_expired_job_keys(gateway: GatewayUnderTest, bucket: str) -> None:
    attempt = f"revoke-{bucket}"
    who = gateway.job_credentials(attempt, write=[(bucket, "out/")])
    s3 = gateway.client(who, retries={"total_max_attempts": 1})
    s3.put_object(Bucket=bucket, Key="out/x", Body=b"1")
    gateway.database.write_sync(lambda session: gateway.identity.revoke_job_keys(session, attempt))
    revoked = time.monotonic()

    def code() -> str:
        try:
            s3.put_object(Bucket=bucket, Key="out/x", Body=b"2")
        except ClientError as error:
            return str(error.response["Error"]["Code"])
        return ""

    assert wait_until(code, timeout=5) == "InvalidAccessKeyId"
    assert time.monotonic() - revoked <= 2.0
    late = gateway.job_credentials(f"late-{bucket}", write=[(bucket, "out/")], lifetime=-1)
    assert refused(lambda: gateway.client(late).put_object(Bucket=bucket, Key="out/x")) == "ExpiredToken"


def test_no_secret_in_the_log(gateway: GatewayUnderTest, bucket: str) -> None:
    who = gateway.job_credentials(f"log-{bucket}", write=[(bucket, "a")])
    url = path_of(presigned(gateway, "s3v4", "put_object", bucket, who))
    assert plain("PUT", gateway.endpoint, url, b"x").status == 200
    log = wait_until(lambda: (text := gateway.log_path.read_text()).count(f"log-{bucket}") and text)
    signature = url.partition("X-Amz-Signature=")[2].partition("&")[0]
    for secret in (who.secret_access_key, str(who.session_token), signature, gateway.store.secret_key):
        assert secret and secret not in log


def test_region_of_the_client_does_not_matter(gateway: GatewayUnderTest, bucket: str) -> None:
    client = boto3.client(
        "s3",
        endpoint_url=gateway.endpoint,
        aws_access_key_id=gateway.admin.access_key_id,
        aws_secret_access_key=gateway.admin.secret_access_key,
        region_name="eu-central-1",
        config=Config(),
    )
    assert client.meta.region_name != REGION
    assert client.list_objects_v2(Bucket=bucket)["KeyCount"] == 0
