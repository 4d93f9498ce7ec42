"""Every request that was recorded from a real client reaches the operation that it is meant for, over a live port."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest

from tests.integration.wire.serving import REGION, Served, serving
from trainshed_service import cloudwatch, cloudwatch_logs, iam, sagemaker, sts
from trainshed_service.wire import Context

FOLDER = Path(__file__).parents[2] / "support" / "traces"
OURS = {
    "sagemaker": sagemaker.OPERATIONS,
    "logs": cloudwatch_logs.OPERATIONS,
    "cloudwatch": cloudwatch.OPERATIONS,
    "sts": sts.OPERATIONS,
    "iam": iam.OPERATIONS,
}
TARGETS = {
    "sagemaker": "SageMaker",
    "logs": "Logs_20140328",
    "monitoring": "GraniteServiceVersion20100801",
    "servicequotas": "ServiceQuotasV20190624",
}

reached: list[tuple[str, str, dict[str, Any]]] = []


async def _note(ctx: Context, request: dict[str, Any]) -> dict[str, Any]:
    reached.append((ctx.service, ctx.operation, request))
    return {}


async def _s3(scope: Any, receive: Any, send: Any) -> None:
    reached.append(("s3", scope["method"], {}))
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    operations = {service: dict.fromkeys(known, _note) for service, known in OURS.items()}
    with serving(tmp_path_factory.mktemp("home"), operations, s3=_s3) as running:
        yield running


def calls() -> list[tuple[str, Mapping[str, Any]]]:
    return [
        (f"{file.stem}-{index}-{call.get('op', call['method'])}", call)
        for file in sorted(FOLDER.glob("*.json"))
        for index, call in enumerate(json.loads(file.read_text()))
    ]


def send(served: Served, client: httpx.Client, call: Mapping[str, Any]) -> httpx.Response:
    """The recorded request once more, signed for this port. Bodies of S3 requests were not recorded."""
    service, body = call["service"], call.get("body")
    headers = {name: value for name, value in call["headers"].items() if name in ("Content-Type", "x-amzn-query-mode")}
    if isinstance(body, dict) and "Action" in body:
        content = urlencode(body).encode()
        headers["Content-Type"] = "application/x-www-form-urlencoded; charset=utf-8"
    else:
        content = json.dumps(body).encode() if isinstance(body, dict) else b""
        if service in TARGETS and call["path"] == "/":
            headers["X-Amz-Target"] = f"{TARGETS[service]}.{call['op']}"
    url = served.url + call["path"]
    request = AWSRequest(call["method"], url, data=content, headers=headers)
    SigV4Auth(served.credentials, service, REGION).add_auth(request)
    return client.request(call["method"], url, content=content, headers=dict(request.prepare().headers))


def test_each_recorded_request_is_routed(served: Served) -> None:
    counted = {"ours": 0, "s3": 0, "unknown": 0}
    with httpx.Client(timeout=30) as client:
        for name, call in calls():
            reached.clear()
            answer = send(served, client, call)
            service = {"monitoring": "cloudwatch"}.get(call["service"], call["service"])
            if service == "s3":
                counted["s3"] += 1
                assert reached == [("s3", call["method"], {})], name
            elif call["op"] in OURS.get(service, {}):
                counted["ours"] += 1
                assert answer.status_code == 200, (name, answer.text)
                assert [entry[:2] for entry in reached] == [(service, call["op"])], name
            else:
                counted["unknown"] += 1
                assert reached == [], name
                assert answer.status_code == 400, name
                assert answer.json()["__type"] == "UnknownOperationException", name
                assert call["op"] in answer.json()["message"], name
    assert counted["ours"] > 200
    assert counted["s3"] > 100
    assert counted["unknown"] > 5
