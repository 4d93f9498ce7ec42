"""`/v1/training-jobs/{name}/logs`, `/events`, `/metrics`: what a job writes, as pages, as a download and followed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from trainshed_service.rest import calls, follow, sse
from trainshed_service.rest.auth import Caller, authenticate
from trainshed_service.rest.documents import parameter
from trainshed_service.services import Services
from trainshed_service.wire.errors import validation_error

router = APIRouter(tags=["logs, events and metrics"])
Authenticated = Annotated[Caller, Depends(authenticate)]
_INTEGER = {"type": "integer", "minimum": 0}
_HOST = parameter("host", {"type": "string"}, "algo-N; may be given more than once")


@router.get(
    "/v1/training-jobs/{name}/logs",
    openapi_extra={
        "parameters": [
            _HOST,
            parameter("cursor", {"type": "string"}, "goes on behind a page or line"),
            parameter("limit", {"type": "integer", "minimum": 1, "maximum": 10_000}, "lines of a page"),
            parameter("format", {"type": "string", "enum": ["json", "text", "sse"]}, "instead of the Accept header"),
            parameter("batch", {"type": "boolean"}, "events: lines that are read together in one event `lines`"),
        ]
    },
)
async def logs(name: str, request: Request, caller: Authenticated) -> Response:
    """The lines of all hosts, ordered by time. JSON: a page, go on with `cursor`. `text/plain`: the whole log.
    `text/event-stream`: every line, live, until the job has ended; resumes behind Last-Event-ID."""
    calls.refuse_unknown(request.query_params.multi_items(), ["host", "cursor", "limit", "format", "batch"])
    await _need_job(caller, name)
    services = caller.services
    hosts = request.query_params.getlist("host") or None
    cursor = request.headers.get("last-event-id") or request.query_params.get("cursor")
    limit = calls.integer(request.query_params, "limit", 1_000, 1, 10_000)
    await follow.check_cursor(services, name, cursor)
    match _format(request):
        case "text":
            return await _download(services, name, hosts)
        case "sse":
            in_batches = calls.boolean(request.query_params, "batch")
            return sse.stream(follow.lines(services, name, cursor, hosts, caller.reach_now, in_batches=in_batches))
    page = await services.logs.tail(name, cursor, limit=limit, hosts=hosts)
    return JSONResponse(
        {"lines": [follow.line_object(each) for each in page.lines], "cursor": page.cursor, "atEnd": page.at_end}
    )


@router.get(
    "/v1/training-jobs/{name}/events",
    openapi_extra={
        "parameters": [
            parameter("after", _INTEGER, "the id of an event; those behind it are given"),
            parameter("limit", {"type": "integer", "minimum": 1, "maximum": 1_000}),
            parameter("format", {"type": "string", "enum": ["json", "sse"]}, "instead of the Accept header"),
        ]
    },
)
async def events(name: str, request: Request, caller: Authenticated) -> Response:
    """What happened to a job, oldest first. `text/event-stream`: live, until the job has ended."""
    calls.refuse_unknown(request.query_params.multi_items(), ["after", "limit", "format"])
    await _need_job(caller, name)
    after = calls.integer(request.query_params, "after", 0, 0, 2**53)
    if "last-event-id" in request.headers:
        after = calls.integer({"Last-Event-ID": request.headers["last-event-id"]}, "Last-Event-ID", 0, 0, 2**53)
    if _format(request) == "sse":
        return sse.stream(follow.events(caller.services, name, after, caller.reach_now))
    limit = calls.integer(request.query_params, "limit", 500, 1, 1_000)
    found = await caller.services.events.read(after, f"job/{name}", limit)
    return JSONResponse({"events": [follow.event_object(each) for each in found]})


@router.get(
    "/v1/training-jobs/{name}/metrics",
    openapi_extra={
        "parameters": [
            parameter("name", {"type": "string"}, "of a metric: gives its points"),
            parameter("host", {"type": "string"}, "algo-N: a metric of that host"),
            parameter("after", _INTEGER, "epoch milliseconds; points behind it"),
            parameter("limit", {"type": "integer", "minimum": 1, "maximum": 10_000}),
        ]
    },
)
async def metrics(name: str, request: Request, caller: Authenticated) -> Response:
    """Which metrics a job has and the last value of each of its own; with `name` the points of one of them."""
    query = request.query_params
    calls.refuse_unknown(query.multi_items(), ["name", "host", "after", "limit"])
    await _need_job(caller, name)
    store = caller.services.metrics
    if "name" in query:
        points = await store.points(
            name,
            query["name"],
            host=query.get("host"),
            after_ms=calls.integer(query, "after", 0, 0, 2**53) - ("after" not in query),
            limit=calls.integer(query, "limit", 10_000, 1, 10_000),
        )
        return JSONResponse({"points": [{"timestamp": ms, "value": value} for ms, value in points]})
    keys = await store.list(job_name=name, host=query.get("host"))
    finals = await store.final(name)
    return JSONResponse(
        {
            "metrics": [{"name": key.name, "host": key.host} for key in keys],
            "final": [{"name": each.name, "value": each.value, "timestamp": int(each.at * 1000)} for each in finals],
        }
    )


async def _need_job(caller: Caller, name: str) -> None:
    """Not found, or not to be seen by this caller."""
    await calls.call(caller, "DescribeTrainingJob", {"TrainingJobName": name})


def _format(request: Request) -> str:
    asked = request.query_params.get("format")
    if asked is not None:
        if asked not in ("json", "text", "sse"):
            raise validation_error("The query parameter 'format' is json, text or sse.")
        return asked
    accepted = request.headers.get("accept", "")
    if "text/event-stream" in accepted:
        return "sse"
    return "text" if "text/plain" in accepted and "application/json" not in accepted else "json"


async def _download(services: Services, name: str, hosts: Sequence[str] | None) -> Response:
    """Lines as they were written; each with its host where there are several."""
    streams = [stream for stream in await services.logs.job_streams(name) if hosts is None or stream.host in hosts]
    is_merged = len({stream.host for stream in streams}) > 1

    async def text() -> AsyncIterator[bytes]:
        buffer: list[str] = []
        async for each in services.logs.download(name, hosts=hosts):
            buffer.append(f"{each.host} | {each.line.text}\n" if is_merged else f"{each.line.text}\n")
            if len(buffer) == 500:
                yield "".join(buffer).encode()
                buffer.clear()
        if buffer:
            yield "".join(buffer).encode()

    headers: dict[str, Any] = {"content-disposition": f'attachment; filename="{name}.log"'}
    return StreamingResponse(text(), media_type="text/plain; charset=utf-8", headers=headers)
