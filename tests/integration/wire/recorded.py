"""The requests that real clients sent (tests/support/traces), put in an order in which each finds what it needs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

FOLDER = Path(__file__).parents[2] / "support" / "traces"
TARGETS = {
    "sagemaker": "SageMaker",
    "logs": "Logs_20140328",
    "monitoring": "GraniteServiceVersion20100801",
    "servicequotas": "ServiceQuotasV20190624",
}
_KEPT_HEADERS = ("Content-Type", "x-amzn-query-mode", "x-amz-server-side-encryption", "x-amz-checksum-mode")

Call = dict[str, Any]


def recordings() -> dict[str, list[Call]]:
    """The calls of each client step, by the step's name."""
    return {file.stem: json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))}


def in_order(steps: Mapping[str, list[Call]]) -> Iterator[str]:
    """A step comes after those that made its jobs and buckets; one that deletes a job comes after all that use it."""
    makers: dict[str, set[str]] = {}
    for name, calls in steps.items():
        for made in filter(None, map(_made, calls)):
            makers.setdefault(made, set()).add(name)
    waiting = dict.fromkeys(sorted(steps, key=lambda name: (_deletes(steps[name]), name)))
    made: set[str] = set()
    while waiting:
        name = next(name for name in waiting if _needs(steps[name], makers.keys()) <= made)
        del waiting[name]
        made |= set(filter(None, map(_made, steps[name])))
        yield name


def signed(
    call: Call, url: str, credentials: Credentials, region: str, *, path: str = "", body: Any = None, **more: str
) -> httpx.Request:
    """The recorded request once more, signed for `url`. `path`, `body` and `more` (headers) stand in for what was
    recorded. Bodies of S3 requests were not recorded."""
    service, body = call["service"], call.get("body") if body is None else body
    headers = {name: value for name, value in call["headers"].items() if name in _KEPT_HEADERS} | more
    if isinstance(body, dict) and "Action" in body:
        content = urlencode(body).encode()
        headers["Content-Type"] = "application/x-www-form-urlencoded; charset=utf-8"
    else:
        content = json.dumps(body).encode() if isinstance(body, dict) else body if isinstance(body, bytes) else b""
        if service in TARGETS and call["path"] == "/":
            headers["X-Amz-Target"] = f"{TARGETS[service]}.{call['op']}"
    whole = url + (path or call["path"])
    request = AWSRequest(call["method"], whole, data=content, headers=headers)
    if "X-Amz-Trailer" in headers:
        request.context["checksum"] = {"request_algorithm": {"in": "trailer"}}
    signer = (S3SigV4Auth if service == "s3" else SigV4Auth)(credentials, service, region)
    signer.add_auth(request)
    sent = dict(request.prepare().headers)
    if headers.get("Transfer-Encoding") == "chunked":
        return httpx.Request(call["method"], whole, content=iter([content]), headers=sent)
    return httpx.Request(call["method"], whole, content=content, headers=sent)


def job_of(call: Call) -> str | None:
    """The name of the job that the call is about."""
    body = call.get("body")
    if not isinstance(body, dict):
        return None
    for member in ("TrainingJobName", "logStreamName", "logStreamNamePrefix", "ResourceArn"):
        if member in body:
            named = str(body[member])
            return named.rpartition("/")[2] if member == "ResourceArn" else named.partition("/")[0]
    return None


def bucket_of(call: Call) -> str | None:
    if call["service"] != "s3":
        return None
    return str(call["path"]).split("?")[0].split("/")[1] or None


def makes_bucket(call: Call) -> bool:
    return call["method"] == "PUT" and call["path"] == f"/{bucket_of(call)}"


def _made(call: Call) -> str | None:
    if call["status"] != 200:
        return None
    if call.get("op") == "CreateTrainingJob":
        return job_of(call)
    return f"/{bucket_of(call)}" if call["service"] == "s3" and makes_bucket(call) else None


def _needs(calls: list[Call], makeable: Any) -> set[str]:
    """What a step uses of what some step makes, without having made it itself before."""
    needs: set[str] = set()
    own: set[str] = set()
    for call in calls:
        used = {job_of(call), f"/{bucket_of(call)}"} & set(makeable) - own
        if (made := _made(call)) is not None:
            own.add(made)
            used -= {made}
        if call["status"] != 404:
            needs |= used
    return needs


def _deletes(calls: list[Call]) -> bool:
    return any(call.get("op") == "DeleteTrainingJob" for call in calls)
