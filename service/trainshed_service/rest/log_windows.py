"""`/v1/training-jobs/{name}/logs/window` and `/logs/search`: parts of a log by line, and the lines that match."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse

from trainshed_service.logs import InvalidPattern, InvalidToken, Range, WindowLine
from trainshed_service.logs.finding import MAX_CONTEXT, Matches, by_error, by_regex, by_text
from trainshed_service.logs.window import MAX_LINES
from trainshed_service.rest import calls
from trainshed_service.rest.auth import Caller, authenticate
from trainshed_service.rest.documents import parameter
from trainshed_service.wire.errors import validation_error

router = APIRouter(tags=["logs, events and metrics"])
Authenticated = Annotated[Caller, Depends(authenticate)]
LONGEST = 8_192
"""Characters of a line that a window shows; the whole line is in the download and in the pages of `/logs`."""

_COUNT = {"type": "integer", "minimum": 0}
_RANGE = [
    parameter("host", {"type": "string"}, "algo-N; may be given more than once"),
    parameter("from", {"type": "string"}, "a cursor: the range begins behind it; default: at the first line"),
    parameter("to", {"type": "string"}, "a cursor: the range ends before it; default: with the last line now"),
    parameter("offset", _COUNT, "place in the range, in the order of time"),
]
_NAMES = ["host", "from", "to", "offset", "limit"]


@router.get(
    "/v1/training-jobs/{name}/logs/window",
    openapi_extra={
        "parameters": [
            *_RANGE,
            parameter("limit", {"type": "integer", "minimum": 0, "maximum": MAX_LINES}),
            parameter("at", {"type": "string"}, "algo-N-<number>:<line>, from 1: its place is `at`, lines around it"),
        ]
    },
)
async def window(name: str, request: Request, caller: Authenticated) -> Response:
    """Lines of a range of the log by their place. The range between two cursors never changes: `to` of an answer,
    given again, keeps every place where it is."""
    query = request.query_params
    calls.refuse_unknown(query.multi_items(), [*_NAMES, "at"])
    await calls.call(caller, "DescribeTrainingJob", {"TrainingJobName": name})
    offset, limit = _offset(query), calls.integer(query, "limit", 500, 0, MAX_LINES)
    try:
        found = await caller.services.logs.window(name, _range(request), offset, limit, query.get("at"))
    except InvalidToken as error:
        raise validation_error(f"The cursor is not valid: {error}.") from error
    return JSONResponse(
        {
            "lines": [_line(each) for each in found.lines],
            "to": found.end,
            "counts": found.counts,
            "total": sum(found.counts.values()),
            "at": found.at,
        }
    )


@router.get(
    "/v1/training-jobs/{name}/logs/search",
    openapi_extra={
        "parameters": [
            *_RANGE,
            parameter("limit", {"type": "integer", "minimum": 1, "maximum": MAX_LINES}, "matches"),
            parameter("text", {"type": "string"}, "lines that contain it, whatever the case"),
            parameter("regex", {"type": "string"}, "lines in which this matches, whatever the case"),
            parameter("error", {"type": "boolean"}, "lines that look like errors"),
            parameter("context", {"type": "integer", "minimum": 0, "maximum": MAX_CONTEXT}, "lines around each"),
        ]
    },
)
async def search(name: str, request: Request, caller: Authenticated) -> Response:
    """The lines of a range that match. One call looks at a part of a long log: go on at `next` until it is null."""
    query = request.query_params
    calls.refuse_unknown(query.multi_items(), [*_NAMES, "text", "regex", "error", "context"])
    await calls.call(caller, "DescribeTrainingJob", {"TrainingJobName": name})
    offset, limit = _offset(query), calls.integer(query, "limit", 500, 1, MAX_LINES)
    context = calls.integer(query, "context", 0, 0, MAX_CONTEXT)
    try:
        found = await caller.services.logs.find(name, _range(request), _matches(query), offset, limit, context)
    except InvalidToken as error:
        raise validation_error(f"The cursor is not valid: {error}.") from error
    except InvalidPattern as error:
        raise validation_error(str(error)) from error
    lines = [_line(each) for each in found.lines]
    return JSONResponse({"lines": lines, "matching": found.matching, "next": found.after})


def _matches(query: Any) -> Matches:
    given = [name for name in ("text", "regex", "error") if name in query]
    if len(given) != 1:
        raise validation_error("Exactly one of the query parameters 'text', 'regex' and 'error' says what to find.")
    if given == ["error"]:
        if not calls.boolean(query, "error"):
            raise validation_error("The query parameter 'error' is true where it is given.")
        return by_error
    wanted = query[given[0]]
    if not wanted:
        raise validation_error(f"The query parameter '{given[0]}' must not be empty.")
    return by_text(wanted) if given == ["text"] else by_regex(wanted)


def _range(request: Request) -> Range:
    hosts: Sequence[str] | None = request.query_params.getlist("host") or None
    return Range(request.query_params.get("from"), request.query_params.get("to"), hosts)


def _offset(query: Any) -> int:
    return calls.integer(query, "offset", 0, 0, 2**53)


def _line(each: WindowLine) -> dict[str, Any]:
    text = each.text
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]} … [{len(each.text)} characters: the download has all]"
    return {
        "index": each.index,
        "host": each.host,
        "stream": each.stream,
        "position": each.position,
        "timestamp": each.ms,
        "text": text,
    }
