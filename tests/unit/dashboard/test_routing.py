"""Which requests are the dashboard's, on a port that S3 and the AWS APIs share."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.auth import HmacV1QueryAuth, S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from trainshed_service.dashboard.routing import claims, safe_target

PAGES = [
    "/",
    "/login",
    "/queue",
    "/nodes",
    "/nodes/0f3c",
    "/pools",
    "/pools/a-job",
    "/jobs",
    "/jobs/a-job",
    "/jobs/a-job/log",
    "/static/abc/style.css",
    "/favicon.ico",
]
FORM = [("content-type", "application/x-www-form-urlencoded")]


def scope(method: str, path: str, headers: list[tuple[str, str]] | None = None, query: str = "") -> dict[str, Any]:
    encoded = [(name.lower().encode(), value.encode()) for name, value in headers or []]
    return {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": encoded}


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_pages_of_a_browser_are_ours(method: str, path: str) -> None:
    assert claims(scope(method, path, [("accept", "text/html"), ("cookie", "a=b")], "status=failed"))


@pytest.mark.parametrize("path", ["/jobs/a/b", "/jobs/-a", "/jobs/a%2Fb", "/bucket", "/bucket/key", "/jobs/", "/v1/x"])
def test_other_paths_are_not(path: str) -> None:
    assert not claims(scope("GET", path))


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH"])
@pytest.mark.parametrize("path", PAGES)
def test_no_other_method_is(method: str, path: str) -> None:
    assert not claims(scope(method, path, FORM))


def test_only_forms_are_posted() -> None:
    assert claims(scope("POST", "/login", FORM))
    assert claims(scope("POST", "/jobs/a-job/stop", [("content-type", "application/x-www-form-urlencoded; charset=x")]))
    assert not claims(
        scope("POST", "/login", [("content-type", "multipart/form-data; boundary=x")])
    )  # S3's POST upload
    assert not claims(scope("POST", "/login"))
    assert not claims(scope("POST", "/", FORM))  # the AWS query protocol
    assert not claims(scope("POST", "/jobs/a-job", FORM))


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("auth", [S3SigV4Auth, S3SigV4QueryAuth, HmacV1QueryAuth])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_whatever_botocore_signs_for_s3_is_s3s(method: str, auth: Any, path: str) -> None:
    request = AWSRequest(method, f"http://127.0.0.1:1234{path}")
    credentials = Credentials("AKIAEXAMPLE", "secret")
    signer = auth(credentials) if auth is HmacV1QueryAuth else auth(credentials, "s3", "us-east-1")
    signer.add_auth(request)
    prepared = request.prepare()
    query = prepared.url.partition("?")[2]
    headers = [(name, value if isinstance(value, str) else value.decode()) for name, value in prepared.headers.items()]
    assert not claims(scope(method, path, headers, query))


@pytest.mark.parametrize(
    "name", ["authorization", "x-amz-target", "x-amz-date", "X-Amz-Content-Sha256", "amz-sdk-request"]
)
def test_a_header_of_an_aws_client_is_enough(name: str) -> None:
    assert not claims(scope("GET", "/jobs", [(name, "x")]))


@pytest.mark.parametrize("query", ["Action=ListUsers", "a=b&X-Amz-Signature=1", "AWSAccessKeyId=x&Signature=y"])
def test_so_is_a_query_of_one(query: str) -> None:
    assert not claims(scope("GET", "/", query=query))


@pytest.mark.parametrize("path", ["/jobs", "/jobs/a-job", "/jobs/a-job/log", "/nodes", "/jobs?status=failed&q=x"])
def test_after_the_login_one_comes_to_the_page_asked_for(path: str) -> None:
    assert safe_target(path) == path


@pytest.mark.parametrize(
    "target",
    [
        None,
        "",
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "/jobs\r\nset-cookie: a=b",
        "javascript:alert(1)",
        "/login?next=/login",
        "/static/x/y.js",
        "/jobs/../v1/whoami",
    ],
)
def test_but_never_elsewhere(target: str | None) -> None:
    assert safe_target(target) == "/jobs"


@given(st.text())
def test_no_text_leads_away(target: str) -> None:
    found = safe_target(target)
    assert found.startswith(("/jobs", "/nodes")) and found.isprintable()
