"""CloudWatch Logs over the one group that there is, `/aws/sagemaker/TrainingJobs`.

The group always exists, also before the first job: clients that look for a job's streams too early get an empty list.
Invariant: streams of jobs that the caller may not see are as absent; a page that they would have filled is shorter, and
its token goes on behind them.

Shapes and limits are checked by the dispatcher against the service model; what stands here are the rules beyond them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from trainshed_service.jobs.reach import Reach, to_see
from trainshed_service.jobs.seen import seen_of, sees
from trainshed_service.logs import LOG_GROUP, InvalidPattern, InvalidToken, StreamInfo, UnknownStream
from trainshed_service.wire.errors import ApiError

if TYPE_CHECKING:
    from trainshed_service.wire.context import Context

_MOST_PAGES = 20
"""Pages of streams looked at for one answer where the caller may see none of them."""
Request = dict[str, Any]
Response = dict[str, Any]


async def describe_log_groups(ctx: Context, request: Request) -> Response:
    prefix, pattern = request.get("logGroupNamePrefix"), request.get("logGroupNamePattern")
    if prefix and pattern:
        raise invalid("LogGroup name prefix and LogGroup name pattern are mutually exclusive parameters.")
    arns = {_group_arn(ctx), _group_arn(ctx) + ":*", LOG_GROUP}
    shown = LOG_GROUP.startswith(prefix or "") and (pattern or "").lower() in LOG_GROUP.lower()
    if request.get("logGroupIdentifiers") is not None:
        shown = shown and not arns.isdisjoint(request["logGroupIdentifiers"])
    if request.get("logGroupClass") not in (None, "STANDARD"):
        shown = False
    if request.get("nextToken") is not None:
        raise invalid("The specified nextToken is invalid.")
    group = {
        "logGroupName": LOG_GROUP,
        "creationTime": 0,
        "metricFilterCount": 0,
        "arn": _group_arn(ctx) + ":*",
        "logGroupArn": _group_arn(ctx),
        "logGroupClass": "STANDARD",
        "storedBytes": 0,
    }
    return {"logGroups": [group] if shown else []}


async def describe_log_streams(ctx: Context, request: Request) -> Response:
    _check_group(ctx, request)
    prefix = request.get("logStreamNamePrefix")
    by_time = request.get("orderBy") == "LastEventTime"
    if prefix and by_time:
        raise invalid("Cannot order by LastEventTime with a logStreamNamePrefix.")
    reach, token = _reach(ctx), request.get("nextToken")
    if not await _sees_prefix(ctx, reach, prefix):
        return {"logStreams": []}
    for _ in range(_MOST_PAGES):
        try:
            page, token = await ctx.services.logs.describe_streams(
                prefix=prefix,
                by_time=by_time,
                descending=bool(request.get("descending")),
                limit=request.get("limit"),
                token=token,
            )
        except InvalidToken as error:
            raise invalid(str(error)) from error
        names = await seen_of(ctx.services.database, reach, (stream.job_name for stream in page))
        streams = [stream for stream in page if stream.job_name in names]
        if streams or token is None:
            break
    return _with_token({"logStreams": [_stream(ctx, stream) for stream in streams]}, token)


async def get_log_events(ctx: Context, request: Request) -> Response:
    _check_group(ctx, request)
    start, end = _time_range(request)
    await _need_stream(ctx, request["logStreamName"])
    try:
        page = await ctx.services.logs.get_events(
            request["logStreamName"],
            start_ms=start,
            end_ms=end,
            token=request.get("nextToken"),
            limit=request.get("limit"),
            from_head=bool(request.get("startFromHead")),
        )
    except UnknownStream as error:
        raise _no_stream() from error
    except InvalidToken as error:
        raise invalid(str(error)) from error
    return {
        "events": [
            {"timestamp": line.ms, "message": line.text, "ingestionTime": line.ingested_ms} for line in page.lines
        ],
        "nextForwardToken": page.forward_token,
        "nextBackwardToken": page.backward_token,
    }


async def filter_log_events(ctx: Context, request: Request) -> Response:
    _check_group(ctx, request)
    names, prefix = request.get("logStreamNames"), request.get("logStreamNamePrefix")
    if names and prefix:
        raise invalid("LogStreamNames and logStreamNamePrefix are mutually exclusive.")
    start, end = _time_range(request)
    reach = _reach(ctx)
    for name in names or ():
        await _need_stream(ctx, name)
    if not await _sees_prefix(ctx, reach, prefix):
        return {"events": [], "searchedLogStreams": []}
    try:
        page = await ctx.services.logs.filter_events(
            pattern=request.get("filterPattern"),
            names=names,
            prefix=prefix,
            start_ms=start,
            end_ms=end,
            token=request.get("nextToken"),
            limit=request.get("limit"),
        )
    except UnknownStream as error:
        raise _no_stream() from error
    except (InvalidToken, InvalidPattern) as error:
        raise invalid(str(error)) from error
    seen = await seen_of(ctx.services.database, reach, (_job_of(found.stream) for found in page.lines))
    events = [
        {
            "logStreamName": found.stream,
            "timestamp": found.line.ms,
            "message": found.line.text,
            "ingestionTime": found.line.ingested_ms,
            "eventId": found.event_id,
        }
        for found in page.lines
        if _job_of(found.stream) in seen
    ]
    return _with_token({"events": events, "searchedLogStreams": []}, page.token)


def _reach(ctx: Context) -> Reach:
    return to_see(ctx.principal, ctx.services.settings)


async def _need_stream(ctx: Context, name: str) -> None:
    """ResourceNotFoundException for a stream of a job that the caller may not see."""
    if not await sees(ctx.services.database, _reach(ctx), _job_of(name)):
        raise _no_stream()


async def _sees_prefix(ctx: Context, reach: Reach, prefix: str | None) -> bool:
    """Whether streams with this prefix may be shown. One without a slash may be of many jobs: they are looked at."""
    return not prefix or "/" not in prefix or await sees(ctx.services.database, reach, _job_of(prefix))


def _job_of(stream: str) -> str:
    return stream.partition("/")[0]


def invalid(message: str) -> ApiError:
    return ApiError("InvalidParameterException", message)


def _no_stream() -> ApiError:
    return ApiError("ResourceNotFoundException", "The specified log stream does not exist.")


def _check_group(ctx: Context, request: Request) -> None:
    name, identifier = request.get("logGroupName"), request.get("logGroupIdentifier")
    if (name is None) == (identifier is None):
        raise invalid("Exactly one of logGroupName and logGroupIdentifier must be given.")
    if identifier is not None and re.fullmatch(r"arn:.*", identifier):
        known = identifier.removesuffix(":*") == _group_arn(ctx)
    else:
        known = (name or identifier) == LOG_GROUP
    if not known:
        raise ApiError("ResourceNotFoundException", "The specified log group does not exist.")


def _time_range(request: Request) -> tuple[int | None, int | None]:
    start, end = request.get("startTime"), request.get("endTime")
    if start is not None and end is not None and end < start:
        raise invalid("startTime must not be later than endTime.")
    return start, end


def _group_arn(ctx: Context) -> str:
    settings = ctx.services.settings
    return f"arn:aws:logs:{settings.region}:{settings.account_id}:log-group:{LOG_GROUP}"


def _stream(ctx: Context, stream: StreamInfo) -> Response:
    shown = {
        "logStreamName": stream.name,
        "creationTime": stream.created_ms,
        "firstEventTimestamp": stream.first_ms,
        "lastEventTimestamp": stream.last_ms,
        "lastIngestionTime": stream.last_ingest_ms,
        "uploadSequenceToken": f"{stream.lines:056d}",
        "arn": f"{_group_arn(ctx)}:log-stream:{stream.name}",
        "storedBytes": 0,
    }
    return {name: value for name, value in shown.items() if value is not None}


def _with_token(response: Response, token: str | None) -> Response:
    return response if token is None else {**response, "nextToken": token}
