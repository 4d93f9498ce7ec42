"""Charts and phase bars as numbers."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed_service.dashboard.charts import HEIGHT, POINTS, WIDTH, group, thin
from trainshed_service.dashboard.phases import phase_rows

FINITE = st.floats(allow_nan=False, allow_infinity=False)
SERIES = st.lists(st.tuples(st.integers(0, 2**45), FINITE), min_size=1, max_size=2_000).map(sorted)


@given(SERIES)
def test_every_point_of_a_chart_lies_within_it(points: list[tuple[int, float]]) -> None:
    drawn = group("m", [("a", points), ("b", points[:1])])
    pairs = re.findall(r"(-?[\d.]+) (-?[\d.]+)", drawn.lines[0].path)
    assert 1 <= len(pairs) <= POINTS
    for x, y in pairs:
        assert 0 <= float(x) <= WIDTH and 0 <= float(y) <= HEIGHT
    assert drawn.lines[0].last == points[-1][1] and drawn.count == len(points) + 1


@given(SERIES)
def test_thinning_keeps_ends_extremes_and_order(points: list[tuple[int, float]]) -> None:
    kept = thin(points)
    assert len(kept) <= max(POINTS, 0) and kept == sorted(kept, key=lambda point: point[0])
    assert kept[0] == points[0] and kept[-1] == points[-1]
    values, shown = [value for _, value in points], [value for _, value in kept]
    assert min(values) == min(shown) and max(values) == max(shown)


def test_a_spike_among_many_values_is_seen() -> None:
    points = [(at, 1.0) for at in range(50_000)]
    points[31_234] = (31_234, 99.0)
    assert (31_234, 99.0) in thin(points)


def test_a_single_value_is_a_dot() -> None:
    assert group("m", [("", [(5, 1.0)])]).lines[0].path == f"M{WIDTH / 2:.1f} {HEIGHT / 2:.1f}h.01"


def test_lines_of_one_chart_share_its_scale() -> None:
    drawn = group("m", [("algo-1", [(0, 0.0), (10, 1.0)]), ("algo-2", [(5, 2.0)])])
    assert (drawn.least, drawn.greatest, drawn.start_ms, drawn.end_ms) == (0.0, 2.0, 0, 10)
    assert drawn.lines[1].path == f"M{WIDTH / 2:.1f} 4.0h.01" and [line.colour for line in drawn.lines] == [0, 1]


def test_no_value_is_no_chart() -> None:
    with pytest.raises(ValueError, match="needs a point"):
        group("m", [("", [])])


def phase(host: str, name: str, start: float, end: float | None, attempt: int = 1) -> dict[str, object]:
    return {"Attempt": attempt, "Host": host, "Phase": name, "StartTime": start, "EndTime": end}


def test_rows_are_service_first_then_hosts_in_their_order() -> None:
    ledger = [phase("algo-10", "ready", 2, 3), phase("algo-2", "ready", 2, 3), phase("service", "submit", 0, 1, 0)]
    ledger.append(phase("service", "queue", 1, 2))
    rows = phase_rows(ledger, 4)
    assert [row.host for row in rows] == ["service", "algo-2", "algo-10"]
    assert [bar.phase for bar in rows[0].bars] == ["submit", "queue"]


def test_attempts_are_told_apart_and_a_step_within_a_phase_is_inner() -> None:
    ledger = [
        phase("algo-1", "downloading", 0, 10),
        phase("algo-1", "code", 2, 5),
        phase("algo-1", "running", 20, None, 2),
    ]
    first, second = phase_rows(ledger, 30)
    assert (first.host, second.host) == ("algo-1 (attempt 1)", "algo-1 (attempt 2)")
    assert [bar.is_inner for bar in first.bars] == [False, True]
    assert second.bars[0].is_open and second.bars[0].seconds == 10
    assert not phase_rows(ledger, 30, is_over=True)[1].bars[0].is_open


@given(
    st.lists(
        st.tuples(st.sampled_from(["service", "algo-1"]), st.floats(0, 1e9), st.none() | st.floats(0, 1e6)),
        min_size=1,
        max_size=30,
    ),
    st.floats(0, 2e9),
)
def test_bars_never_leave_their_rail(given_: list[tuple[str, float, float | None]], now: float) -> None:
    ledger = [
        phase(host, f"p{index}", start, None if length is None else start + length)
        for index, (host, start, length) in enumerate(given_)
    ]
    for row in phase_rows(ledger, now):
        for bar in row.bars:
            assert bar.left >= 0 and bar.width > 0 and bar.left + bar.width <= 100.001 and bar.seconds >= 0
