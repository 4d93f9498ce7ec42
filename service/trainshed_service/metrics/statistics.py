"""Statistics of a metric by period, in the terms of CloudWatch.

Invariant: a bucket holds the points with `start ≤ time < start + period`; buckets are counted from the start of the
range asked for; a bucket without points does not exist.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

SIMPLE = ("SampleCount", "Average", "Sum", "Minimum", "Maximum")
_PERCENTILE = re.compile(r"p(100(?:\.0+)?|\d{1,2}(?:\.\d{1,10})?)")


class UnknownStatistic(ValueError):
    """Neither one of `SIMPLE` nor a percentile p0…p100."""


@dataclass(frozen=True)
class Bucket:
    """`start_ms` is epoch milliseconds; `percentiles` holds what was asked for, by the name asked with."""

    start_ms: int
    count: int
    total: float
    minimum: float
    maximum: float
    percentiles: dict[str, float] = field(default_factory=dict)

    def value(self, statistic: str) -> float:
        """UnknownStatistic where it is none of `SIMPLE` and was not asked for."""
        match statistic:
            case "SampleCount":
                return float(self.count)
            case "Average":
                return self.total / self.count
            case "Sum":
                return self.total
            case "Minimum":
                return self.minimum
            case "Maximum":
                return self.maximum
        try:
            return self.percentiles[statistic]
        except KeyError:
            raise UnknownStatistic(statistic) from None


def percentile_rank(name: str) -> float:
    """0…1 of a percentile's name, e.g. 0.995 of `p99.5`. UnknownStatistic."""
    match = _PERCENTILE.fullmatch(name)
    if match is None:
        raise UnknownStatistic(name)
    return float(match[1]) / 100


def percentile(ordered: Sequence[float], rank: float) -> float:
    """Linear between the two nearest values of the ascending, non-empty `ordered`."""
    place = rank * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def buckets_of(
    points: Iterable[tuple[int, float]], start_ms: int, period_ms: int, percentiles: Sequence[str]
) -> list[Bucket]:
    """Buckets, oldest first, of points (time in ms, value) that all lie at or after `start_ms`."""
    values: dict[int, list[float]] = {}
    for ms, value in points:
        values.setdefault((ms - start_ms) // period_ms, []).append(value)
    ranks = {name: percentile_rank(name) for name in percentiles}
    result = []
    for index in sorted(values):
        ordered = sorted(values[index])
        result.append(
            Bucket(
                start_ms=start_ms + index * period_ms,
                count=len(ordered),
                total=math.fsum(ordered),
                minimum=ordered[0],
                maximum=ordered[-1],
                percentiles={name: percentile(ordered, rank) for name, rank in ranks.items()},
            )
        )
    return result
