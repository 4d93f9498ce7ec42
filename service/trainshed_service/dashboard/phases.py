"""The phase ledger as bars: one row for the service and for each host, on one scale of time.

Invariant: every bar lies within 0..100 percent and is wide enough to be seen; an open phase reaches to now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_COLOURS = 8
_THINNEST = 0.4


@dataclass(frozen=True)
class Bar:
    """`left` and `width` in percent of the whole; `colour` is a class of the style sheet."""

    phase: str
    seconds: float
    left: float
    width: float
    colour: int
    is_open: bool


@dataclass(frozen=True)
class PhaseRow:
    """`host` is `service` or algo-N, with the attempt where there were several."""

    host: str
    bars: list[Bar]


def phase_rows(ledger: Sequence[dict[str, Any]], now: float) -> list[PhaseRow]:
    """`ledger` as `describe_extended` gives it; `now` in epoch seconds."""
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
        rows.setdefault((row["Attempt"], row["Host"]), []).append(
            Bar(
                phase=row["Phase"],
                seconds=max(0.0, stop - row["StartTime"]),
                left=round(left, 3),
                width=round(min(width, 100 - left), 3),
                colour=colours[row["Phase"]],
                is_open=row["EndTime"] is None,
            )
        )
    order = sorted(rows, key=lambda key: (key[0], key[1] != "service", _natural(key[1])))
    return [
        PhaseRow(f"{host} (attempt {number})" if several and number else host, rows[number, host])
        for number, host in order
    ]


def _natural(host: str) -> tuple[str, int]:
    stem, _, number = host.rpartition("-")
    return (stem, int(number)) if number.isdigit() else (host, 0)
