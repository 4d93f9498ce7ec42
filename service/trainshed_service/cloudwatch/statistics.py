"""GetMetricStatistics: one metric's statistics by period.

Times are rounded as CloudWatch rounds them: the start down to the period's unit (1, 5, 10, 20, 30 s or one minute);
the end is not included. At most 1,440 data points are given; more is an error that says what to change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainshed_service.cloudwatch.metrics import key_of, milliseconds, unit_of
from trainshed_service.jobs.reach import to_see
from trainshed_service.jobs.seen import sees
from trainshed_service.metrics import Bucket, MetricKey, UnknownStatistic, percentile_rank
from trainshed_service.wire.errors import ApiError

if TYPE_CHECKING:
    from trainshed_service.wire.context import Context

MAX_DATAPOINTS = 1_440
_SHORT_PERIODS = (1, 5, 10, 20, 30)


async def get_metric_statistics(ctx: Context, request: dict[str, Any]) -> dict[str, Any]:
    simple, extended = request.get("Statistics") or [], request.get("ExtendedStatistics") or []
    if not simple and not extended:
        raise ApiError("MissingParameter", "Must specify either Statistics or ExtendedStatistics")
    if simple and extended:
        raise ApiError(
            "InvalidParameterCombination", "The parameters Statistics and ExtendedStatistics may not be used together."
        )
    check_percentiles("ExtendedStatistics", extended)
    period = request["Period"]
    check_period("Period", period)
    start_ms, end_ms = time_range(request, period)
    buckets_asked = -(-(end_ms - start_ms) // (period * 1000))
    key = key_of(request["Namespace"], request["MetricName"], request.get("Dimensions") or [])
    if key is None or not await may_see(ctx, key):
        return {"Label": request["MetricName"], "Datapoints": []}
    unit = unit_of(key)
    buckets: list[Bucket] = []
    if request.get("Unit") in (None, unit):
        buckets = await ctx.services.metrics.statistics(
            key.job_name,
            key.name,
            host=key.host,
            start_ms=start_ms,
            end_ms=end_ms,
            period_ms=period * 1000,
            percentiles=extended,
        )
    if len(buckets) > MAX_DATAPOINTS:
        raise ApiError(
            "InvalidParameterCombination",
            f"You have requested up to {buckets_asked} datapoints, which exceeds the limit of {MAX_DATAPOINTS}. You "
            "may reduce the datapoints requested by increasing Period, or decreasing the time range.",
        )
    return {
        "Label": request["MetricName"],
        "Datapoints": [_datapoint(bucket, simple, extended, unit) for bucket in buckets],
    }


async def may_see(ctx: Context, key: MetricKey) -> bool:
    """Whether the caller may see the job of the metric; otherwise it has no points."""
    return await sees(ctx.services.database, to_see(ctx.principal, ctx.services.settings), key.job_name)


def check_period(member: str, period: int) -> None:
    if period not in _SHORT_PERIODS and period % 60:
        raise ApiError(
            "InvalidParameterValue", f"The parameter {member} must be 1, 5, 10, 20, 30, or a multiple of 60."
        )


def check_percentiles(member: str, names: list[str]) -> None:
    for name in names:
        try:
            percentile_rank(name)
        except UnknownStatistic as error:
            raise ApiError(
                "InvalidParameterValue",
                f"The value {name} for parameter {member} is not supported: percentiles from p0 to p100 are "
                "(trimmed means and other ranges are not).",
            ) from error


def time_range(request: dict[str, Any], period: int) -> tuple[int, int]:
    """Start, rounded down, and end in epoch milliseconds."""
    start_ms, end_ms = milliseconds(request["StartTime"]), milliseconds(request["EndTime"])
    if start_ms >= end_ms:
        raise ApiError("ValidationError", "The parameter StartTime must be less than the parameter EndTime.")
    grain = min(period, 60) * 1000
    return start_ms - start_ms % grain, end_ms


def _datapoint(bucket: Bucket, simple: list[str], extended: list[str], unit: str) -> dict[str, Any]:
    point: dict[str, Any] = {"Timestamp": bucket.start_ms / 1000, "Unit": unit}
    point.update((name, bucket.value(name)) for name in simple)
    if extended:
        point["ExtendedStatistics"] = {name: bucket.value(name) for name in extended}
    return point
