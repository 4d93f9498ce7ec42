"""Small line charts as numbers for SVG: the templates draw them, without scripts and without inline styles.

Invariant: a series of any length becomes at most `POINTS` points, and its least and greatest value in each step of
time are among them, so a spike is never smoothed away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 320, 90
POINTS = 240
COLOURS = 12
_MARGIN = 4


@dataclass(frozen=True)
class Line:
    """One of the lines of a group; `colour` is a class of the style sheet."""

    label: str
    path: str
    last: float
    colour: int


@dataclass(frozen=True)
class Group:
    """Lines of one metric on one scale: its hosts, or the job alone (`label` empty)."""

    title: str
    lines: list[Line]
    least: float
    greatest: float
    start_ms: int
    end_ms: int
    count: int


def group(title: str, series: Sequence[tuple[str, Sequence[tuple[int, float]]]]) -> Group:
    """`series` (label, points): at least one, each with at least one point, ordered by time; values are finite."""
    if not series or any(not points for _, points in series):
        raise ValueError("a chart needs a point")
    values = [value for _, points in series for _, value in points]
    least, greatest = min(values), max(values)
    start, end = min(points[0][0] for _, points in series), max(points[-1][0] for _, points in series)
    lines = [
        Line(label, _path(points, start, end, least, greatest), points[-1][1], index % COLOURS)
        for index, (label, points) in enumerate(series)
    ]
    return Group(title, lines, least, greatest, start, end, len(values))


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


def _path(points: Sequence[tuple[int, float]], start: int, end: int, least: float, greatest: float) -> str:
    kept = thin(points)
    drawn = [(_place(at, start, end, WIDTH), HEIGHT - _place(value, least, greatest, HEIGHT)) for at, value in kept]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in drawn)
    return path + "h.01" if len(drawn) == 1 else path  # the round end of a line without length: a dot


def _place(value: float, low: float, high: float, length: int) -> float:
    """Where `value` of `low`..`high` lies within the margins of `length`; the middle where they are equal."""
    if high <= low:
        return length / 2
    share = (value / 2 - low / 2) / (high / 2 - low / 2)  # halves: the difference of two doubles may overflow
    return _MARGIN + share * (length - 2 * _MARGIN)
