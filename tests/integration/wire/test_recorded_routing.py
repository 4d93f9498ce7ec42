"""Every request that was recorded from a real client reaches the operation that it is meant for, over a live port."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.integration.wire import recorded
from tests.integration.wire.serving import REGION, Served, serving
from trainshed_service import cloudwatch, cloudwatch_logs, iam, sagemaker, sts
from trainshed_service.wire import Context

OURS = {
    "sagemaker": sagemaker.OPERATIONS,
    "logs": cloudwatch_logs.OPERATIONS,
    "cloudwatch": cloudwatch.OPERATIONS,
    "sts": sts.OPERATIONS,
    "iam": iam.OPERATIONS,
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


def calls() -> list[tuple[str, recorded.Call]]:
    return [
        (f"{step}-{index}-{call.get('op', call['method'])}", call)
        for step, made in recorded.recordings().items()
        for index, call in enumerate(made)
    ]


def test_each_recorded_request_is_routed(served: Served) -> None:
    counted = {"ours": 0, "s3": 0, "unknown": 0}
    with httpx.Client(timeout=30) as client:
        for name, call in calls():
            reached.clear()
            answer = client.send(recorded.signed(call, served.url, served.credentials, REGION))
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
