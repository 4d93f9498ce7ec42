"""GetMetricData (metrics, not math) and ListMetrics.

Invariant: a page of GetMetricData is cut at a time, the same for all metrics, so that going on from the token gives
each data point of each metric exactly once. Metrics of jobs that the caller may not see are as absent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainshed_service.cloudwatch.metrics import NAMESPACE, dimensions_of, key_of, unit_of
from trainshed_service.cloudwatch.statistics import check_percentiles, check_period, may_see, time_range
from trainshed_service.jobs.reach import to_see
from trainshed_service.jobs.seen import seen_of
from trainshed_service.metrics import Bucket, MetricKey
from trainshed_service.metrics.statistics import SIMPLE
from trainshed_service.wire.errors import ApiError

if TYPE_CHECKING:
    from trainshed_service.wire.context import Context

MAX_QUERIES = 500
MAX_DATAPOINTS = 100_800
LIST_PAGE = 500
_RECENTLY_ACTIVE_MS = 3 * 3600 * 1000
_ID = re.compile(r"[a-z][a-zA-Z0-9_]*")


@dataclass(frozen=True)
class _Query:
    id: str
    label: str
    key: MetricKey | None
    period: int
    stat: str
    shown: bool


async def get_metric_data(ctx: Context, request: dict[str, Any]) -> dict[str, Any]:
    shown = [query for query in _queries(request["MetricDataQueries"]) if query.shown]
    limit = request.get("MaxDatapoints") or MAX_DATAPOINTS
    if not 1 <= limit <= MAX_DATAPOINTS:
        raise _invalid(f"The value for parameter MaxDatapoints must be between 1 and {MAX_DATAPOINTS}.")
    ascending = request.get("ScanBy") == "TimestampAscending"
    resume = _resume_at(ctx, request)
    series = [_in_order(await _buckets(ctx, request, query), ascending, resume) for query in shown]
    each = max(1, limit // max(1, len(series)))
    bounds = [buckets[each].start_ms for buckets in series if len(buckets) > each]
    cut = (min(bounds) if ascending else max(bounds)) if bounds else None
    results = []
    for query, buckets in zip(shown, series, strict=True):
        page = [bucket for bucket in buckets if cut is None or _is_before(bucket.start_ms, cut, ascending)]
        results.append(_result(query, page, is_complete=len(page) == len(buckets)))
    answer: dict[str, Any] = {"MetricDataResults": results, "Messages": []}
    if cut is not None:
        answer["NextToken"] = ctx.services.identity.page_tokens.issue("GetMetricData", request, [cut])
    return answer


async def list_metrics(ctx: Context, request: dict[str, Any]) -> dict[str, Any]:
    filters: dict[str, str | None] = {"job_name": None, "host": None}
    nothing: dict[str, Any] = {"Metrics": []}
    if request.get("Namespace") not in (None, NAMESPACE):
        return nothing
    names = set()
    for dimension in request.get("Dimensions") or []:
        names.add(dimension["Name"])
        value = dimension.get("Value")
        if dimension["Name"] == "TrainingJobName":
            filters.update(job_name=value, host="")
        elif dimension["Name"] == "Host" and value is not None:
            job_name, _, host = value.partition("/")
            if not host:
                return nothing
            filters.update(job_name=job_name, host=host)
    if len(names) > 1 or names - {"TrainingJobName", "Host"}:
        return nothing
    since_ms = None
    if request.get("RecentlyActive"):
        since_ms = int(ctx.services.clock.now() * 1000) - _RECENTLY_ACTIVE_MS
    keys = await ctx.services.metrics.list(
        job_name=filters["job_name"],
        name=request.get("MetricName"),
        host=filters["host"],
        of_hosts="Host" in names and filters["host"] is None,
        after=_list_after(ctx, request),
        since_ms=since_ms,
        limit=LIST_PAGE + 1,
    )
    page = keys[:LIST_PAGE]
    reach = to_see(ctx.principal, ctx.services.settings)
    seen = await seen_of(ctx.services.database, reach, (key.job_name for key in page))
    answer: dict[str, Any] = {
        "Metrics": [
            {"Namespace": NAMESPACE, "MetricName": key.name, "Dimensions": dimensions_of(key)}
            for key in page
            if key.job_name in seen
        ]
    }
    if len(keys) > LIST_PAGE:
        last = page[-1]
        cursor = [last.job_name, last.name, last.host]
        answer["NextToken"] = ctx.services.identity.page_tokens.issue("ListMetrics", request, cursor)
    return answer


async def put_metric_data(_ctx: Context, _request: dict[str, Any]) -> dict[str, Any]:
    raise ApiError(
        "InvalidAction",
        "PutMetricData is not provided: metrics come from the MetricDefinitions of training jobs, which read them from "
        "the log, and from the nodes. Print the value and define a metric with its regular expression.",
    )


def _queries(given: list[dict[str, Any]]) -> list[_Query]:
    """Checked; ApiError in CloudWatch's form."""
    if not given:
        raise _invalid("The parameter MetricDataQueries is required.")
    if len(given) > MAX_QUERIES:
        raise _invalid(f"The collection MetricDataQueries must not have a size greater than {MAX_QUERIES}.")
    seen: set[str] = set()
    queries = []
    for number, each in enumerate(given, 1):
        where = f"MetricDataQueries.member.{number}"
        if not _ID.fullmatch(each["Id"]):
            raise _invalid(
                f'The value "{each["Id"]}" for parameter {where}.Id is not matching the expected pattern '
                "^[a-z][a-zA-Z0-9_]*$."
            )
        if each["Id"] in seen:
            raise _invalid(f'The values for parameter id in MetricDataQueries are not unique: "{each["Id"]}".')
        seen.add(each["Id"])
        stat = each.get("MetricStat")
        if each.get("Expression") is not None:
            if stat is not None:
                raise _invalid(f"The parameters {where}.Expression and {where}.MetricStat are mutually exclusive.")
            raise _invalid(
                f"{where}.Expression: math expressions are not provided by this service; ask for the metrics with "
                "MetricStat and compute with them."
            )
        if stat is None:
            raise _invalid(f"One of the parameters {where}.MetricStat and {where}.Expression must be given.")
        queries.append(_query(each, stat, where))
    return queries


def _query(each: dict[str, Any], stat: dict[str, Any], where: str) -> _Query:
    check_period(f"{where}.MetricStat.Period", stat["Period"])
    if stat["Stat"] not in SIMPLE:
        check_percentiles(f"{where}.MetricStat.Stat", [stat["Stat"]])
    metric = stat["Metric"]
    name = metric.get("MetricName") or ""
    key = key_of(metric.get("Namespace") or "", name, metric.get("Dimensions") or [])
    if key is not None and stat.get("Unit") not in (None, unit_of(key)):
        key = None
    return _Query(
        id=each["Id"],
        label=each.get("Label") or name,
        key=key,
        period=stat["Period"],
        stat=stat["Stat"],
        shown=each.get("ReturnData") is not False,
    )


def _resume_at(ctx: Context, request: dict[str, Any]) -> int | None:
    """The time of the first bucket of this page, in epoch milliseconds; null on the first page."""
    if not request.get("NextToken"):
        return None
    try:
        (cut,) = ctx.services.identity.page_tokens.read("GetMetricData", request, request["NextToken"])
    except ApiError as error:
        raise ApiError("InvalidNextToken", error.message) from error
    return int(cut)


def _list_after(ctx: Context, request: dict[str, Any]) -> MetricKey | None:
    if not request.get("NextToken"):
        return None
    try:
        job_name, name, host = ctx.services.identity.page_tokens.read("ListMetrics", request, request["NextToken"])
    except ApiError as error:
        raise _invalid(error.message) from error
    return MetricKey(job_name, name, host)


async def _buckets(ctx: Context, request: dict[str, Any], query: _Query) -> list[Bucket]:
    if query.key is None or not await may_see(ctx, query.key):
        return []
    start_ms, end_ms = time_range(request, query.period)
    return await ctx.services.metrics.statistics(
        query.key.job_name,
        query.key.name,
        host=query.key.host,
        start_ms=start_ms,
        end_ms=end_ms,
        period_ms=query.period * 1000,
        percentiles=[] if query.stat in SIMPLE else [query.stat],
    )


def _in_order(buckets: list[Bucket], ascending: bool, resume: int | None) -> list[Bucket]:
    ordered = buckets if ascending else buckets[::-1]
    return [bucket for bucket in ordered if resume is None or not _is_before(bucket.start_ms, resume, ascending)]


def _is_before(start_ms: int, cut: int, ascending: bool) -> bool:
    return start_ms < cut if ascending else start_ms > cut


def _result(query: _Query, page: list[Bucket], *, is_complete: bool) -> dict[str, Any]:
    return {
        "Id": query.id,
        "Label": query.label,
        "Timestamps": [bucket.start_ms / 1000 for bucket in page],
        "Values": [bucket.value(query.stat) for bucket in page],
        "StatusCode": "Complete" if is_complete else "PartialData",
        "Messages": [],
    }


def _invalid(message: str) -> ApiError:
    return ApiError("ValidationError", message)
