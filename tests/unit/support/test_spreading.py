"""The order of a parallel run."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tests.support.spreading import SINGLE, WHOLE, spread

PATHS = st.sampled_from(["tests/chaos/a", "tests/browser/a", "tests/acceptance/a", "tests/unit/a", f"{WHOLE[-1]}::a"])


@given(st.lists(PATHS), st.integers(1, 5))
def test_nothing_is_lost_or_doubled(paths: list[str], workers: int) -> None:
    assert Counter(spread(paths, str, workers)) == Counter(paths)


def test_every_worker_begins_with_its_share_of_the_long_ones() -> None:
    paths = ["tests/chaos/a"] * 10 + ["tests/acceptance/a"] * 20 + ["tests/unit/a"] * 90
    order = spread(paths, str, 4)
    pieces = [order[start : start + 30] for start in range(0, 120, 30)]
    long = (*WHOLE, *SINGLE)
    assert {piece.count("tests/chaos/a") for piece in pieces} == {10, 0}
    for piece in pieces:
        count = sum(path.startswith(long) for path in piece)
        assert count in (7, 6, 10) and all(path.startswith(long) for path in piece[:count])
