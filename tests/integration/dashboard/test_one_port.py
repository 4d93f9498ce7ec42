"""S3 and the pages on one port: buckets may be called as the pages are."""

from __future__ import annotations

from typing import Any

import boto3
import httpx
import pytest
from botocore.config import Config

from tests.support.api_process import ApiProcess


def s3(api: ApiProcess, **config: Any) -> Any:
    admin = api.bootstrap.admin
    return boto3.client(
        "s3",
        endpoint_url=api.url,
        region_name="us-east-1",
        aws_access_key_id=admin.access_key_id,
        aws_secret_access_key=admin.secret_access_key,
        config=Config(s3={"addressing_style": "path"}, **config),
    )


@pytest.mark.parametrize("bucket", ["jobs", "nodes", "static", "login", "logout"])
def test_objects_in_a_bucket_that_is_called_like_a_page(api: ApiProcess, bucket: str) -> None:
    client = s3(api)
    client.create_bucket(Bucket=bucket)
    assert bucket in [each["Name"] for each in client.list_buckets()["Buckets"]]  # GET /
    for key in ("a-job", "a-job/log", "a-job/stop", "x/style.css"):
        client.put_object(Bucket=bucket, Key=key, Body=key.encode())
        assert client.get_object(Bucket=bucket, Key=key)["Body"].read() == key.encode()
        assert client.head_object(Bucket=bucket, Key=key)["ContentLength"] == len(key)
        for version in ("s3v4", "s3"):
            signed = s3(api, signature_version=version).generate_presigned_url(
                "get_object", Params={"Bucket": bucket, "Key": key}
            )
            answer = httpx.get(signed, trust_env=False)
            assert (answer.status_code, answer.content) == (200, key.encode()), signed
    assert {each["Key"] for each in client.list_objects_v2(Bucket=bucket)["Contents"]} >= {"a-job", "a-job/log"}
    client.head_bucket(Bucket=bucket)
    client.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "a-job"}]})  # POST /jobs?delete


def test_a_browser_on_the_same_paths_gets_pages(api: ApiProcess) -> None:
    with httpx.Client(base_url=api.url, trust_env=False) as browser:
        assert browser.get("/").headers["location"] == "/jobs"
        assert browser.get("/jobs/a-job").headers["location"].startswith("/login")
        assert "<h1>Log in</h1>" in browser.get("/login").text


def test_everybody_else_is_answered_as_before(api: ApiProcess) -> None:
    with httpx.Client(base_url=api.url, trust_env=False) as browser:
        assert browser.get("/healthz").json() == {"status": "ok"}
        assert browser.get("/docs").status_code == 200
        assert browser.get("/v1/whoami").status_code == 401
        assert browser.get("/some-bucket/key").status_code == 403
        form = {"Action": "GetCallerIdentity", "Version": "2011-06-15"}
        assert "<Code>MissingAuthenticationToken" in browser.post("/", data=form).text
    assert api.client("sts").get_caller_identity()["Account"] == "123456789012"
    assert api.client("iam").list_roles()["Roles"]
