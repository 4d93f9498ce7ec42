"""Raw S3 requests with a signature of one's own making, for what boto3 would never send."""

from __future__ import annotations

import hashlib
import http.client
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials

from tests.support.gateway import REGION
from trainshed_service.identity import Credentials


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """The error code in the body."""
        return self.body.partition(b"<Code>")[2].partition(b"</Code>")[0].decode()


def signed_headers(
    who: Credentials, method: str, url: str, payload: str, headers: dict[str, str] | None = None
) -> dict[str, str]:
    """Headers with a SigV4 signature; `payload` is the content hash as it shall be signed."""
    request = AWSRequest(method, url, headers={"x-amz-content-sha256": payload, **(headers or {})})
    auth = S3SigV4Auth(BotoCredentials(who.access_key_id, who.secret_access_key, who.session_token), "s3", REGION)
    auth.payload = lambda _request: payload  # type: ignore[method-assign]
    auth.add_auth(request)
    return dict(request.headers.items())


def send(
    who: Credentials,
    method: str,
    endpoint: str,
    path: str,
    body: bytes | None = None,
    *,
    payload: str | None = None,
    headers: dict[str, str] | None = None,
    altered: dict[str, str] | None = None,
) -> Answer:
    """`path` is sent as it is. `altered` headers are set after signing."""
    stated = payload or hashlib.sha256(body or b"").hexdigest()
    ready = signed_headers(who, method, endpoint + path, stated, headers) | (altered or {})
    return plain(method, endpoint, path, body, ready)


def plain(
    method: str, endpoint: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> Answer:
    connection = http.client.HTTPConnection(urlsplit(endpoint).netloc, timeout=60)
    try:
        connection.putrequest(method, path, skip_host="Host" in (headers or {}), skip_accept_encoding=True)
        final: dict[str, Any] = dict(headers or {})
        if body is not None and "Transfer-Encoding" not in final:
            final.setdefault("Content-Length", str(len(body)))
        for name, value in final.items():
            connection.putheader(name, value)
        connection.endheaders()
        if body:
            connection.send(body)
        answer = connection.getresponse()
        return Answer(answer.status, {n.lower(): v for n, v in answer.getheaders()}, answer.read())
    finally:
        connection.close()
