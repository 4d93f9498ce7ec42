"""The phase ledger as bars: one row for the service and for each host, on one scale of time.

Invariant: every bar lies within 0..100 percent and is wide enough to be seen; an open phase reaches to now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_COLOURS = 12
_THINNEST = 0.4


@dataclass(frozen=True)
class Bar:
    """`left` and `width` in percent of the whole; `colour` is a class of the style sheet. `is_inner`: a step that lies
    within a longer phase of the same host."""

    phase: str
    seconds: float
    left: float
    width: float
    colour: int
    is_open: bool
    is_inner: bool


@dataclass(frozen=True)
class PhaseRow:
    """`host` is `service` (one row for all attempts) or algo-N, with the attempt where there were several."""

    host: str
    bars: list[Bar]


def phase_rows(ledger: Sequence[dict[str, Any]], now: float, *, is_over: bool = False) -> list[PhaseRow]:
    """`ledger` as `describe_extended` gives it; `now` in epoch seconds. `is_over`: nothing goes on any more."""
    if not ledger:
        return []
    start = min(row["StartTime"] for row in ledger)
    end = max(now, *(row["EndTime"] or now for row in ledger), start + 1e-3)
    several = len({row["Attempt"] for row in ledger if row["Attempt"]}) > 1
    colours = {phase: index % _COLOURS for index, phase in enumerate(dict.fromkeys(row["Phase"] for row in ledger))}
    rows: dict[tuple[int, str], list[Bar]] = {}
    for row in ledger:
        stop = row["EndTime"] if row["EndTime"] is not None else now
        left = 100 * (row["StartTime"] - start) / (end - start)
        width = max(_THINNEST, 100 * (stop - row["StartTime"]) / (end - start))
        left = min(left, 100 - _THINNEST)
        key = (row["Attempt"] if row["Host"] != "service" else 0, row["Host"])
        inside = any(_holds(other, row, now) for other in ledger)
        rows.setdefault(key, []).append(
            Bar(
                phase=row["Phase"],
                seconds=max(0.0, stop - row["StartTime"]),
                left=round(left, 3),
                width=round(min(width, 100 - left), 3),
                colour=colours[row["Phase"]],
                is_open=row["EndTime"] is None and not is_over,
                is_inner=inside,
            )
        )
    order = sorted(rows, key=lambda key: (key[0], key[1] != "service", natural(key[1])))
    return [
        PhaseRow(f"{host} (attempt {number})" if several and number else host, rows[number, host])
        for number, host in order
    ]


def _holds(outer: dict[str, Any], inner: dict[str, Any], now: float) -> bool:
    """Whether `outer` is a longer phase of the same host and attempt, from before `inner` until after it."""
    if outer["Host"] != inner["Host"] or outer["Attempt"] != inner["Attempt"]:
        return False
    starts, ends = (outer["StartTime"], inner["StartTime"]), (outer["EndTime"] or now, inner["EndTime"] or now)
    return starts[0] <= starts[1] and ends[0] >= ends[1] and ends[0] - starts[0] > ends[1] - starts[1] > 0


def natural(host: str) -> tuple[str, int]:
    """Orders algo-2 before algo-10."""
    stem, _, number = host.rpartition("-")
    return (stem, int(number)) if number.isdigit() else (host, 0)
