"""Small line charts as numbers for SVG: the templates draw them, without scripts and without inline styles.

Invariant: a series of any length becomes at most `POINTS` points, and its least and greatest value in each step of
time are among them, so a spike is never smoothed away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 320, 90
POINTS = 240
_MARGIN = 4


@dataclass(frozen=True)
class Chart:
    """`path` is the `d` of an SVG path within `WIDTH` × `HEIGHT`; times are epoch milliseconds."""

    title: str
    path: str
    last: float
    least: float
    greatest: float
    start_ms: int
    end_ms: int
    count: int


def chart(title: str, points: Sequence[tuple[int, float]]) -> Chart:
    """`points` (time, value), ordered by time, at least one; values are finite."""
    if not points:
        raise ValueError("a chart needs a point")
    values = [value for _, value in points]
    least, greatest = min(values), max(values)
    start, end = points[0][0], points[-1][0]
    kept = thin(points)
    drawn = [(_place(at, start, end, WIDTH), HEIGHT - _place(value, least, greatest, HEIGHT)) for at, value in kept]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in drawn)
    if len(drawn) == 1:
        path += "h.01"  # the round end of a line without length: a dot
    return Chart(title, path, values[-1], least, greatest, start, end, len(points))


def thin(points: Sequence[tuple[int, float]], most: int = POINTS) -> list[tuple[int, float]]:
    """First, last, and least and greatest of each of `most`/2 - 1 equal steps; all where they are few."""
    if len(points) <= most:
        return list(points)
    steps = most // 2 - 1
    kept = [points[0]]
    inner = len(points) - 2
    for step in range(steps):
        part = range(1 + inner * step // steps, 1 + inner * (step + 1) // steps)
        low = min(part, key=lambda index: points[index][1])
        high = max(part, key=lambda index: points[index][1])
        kept += [points[index] for index in sorted({low, high})]
    kept.append(points[-1])
    return kept


def _place(value: float, low: float, high: float, length: int) -> float:
    """Where `value` of `low`..`high` lies within the margins of `length`; the middle where they are equal."""
    if high <= low:
        return length / 2
    share = (value / 2 - low / 2) / (high / 2 - low / 2)  # halves: the difference of two doubles may overflow
    return _MARGIN + share * (length - 2 * _MARGIN)
