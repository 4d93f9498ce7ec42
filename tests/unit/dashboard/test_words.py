"""States and lengths of time in words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed_service.dashboard import words
from trainshed_service.jobs.states import JobState


def test_every_state_has_words_and_every_state_but_deleting_a_filter() -> None:
    assert set(words.STATES) == set(JobState)
    filtered = [state for states in words.FILTERS.values() for state in states]
    assert sorted(filtered) == sorted(set(JobState) - {JobState.DELETING})


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (-1, "0.0 s"),
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (3599.6, "1 h 0 min"),
        (7620, "2 h 7 min"),
        (4 * 3600 + 3 * 86400, "3 d 4 h"),
    ],
)
def test_lengths_of_time(seconds: float | None, text: str) -> None:
    assert words.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (18_340.7, "18340"),
        (3_221_225_472.0, "3221000000"),
        (0.000_512_34, "0.0005123"),
        (-2.5, "-2.5"),
        (1e300, "1e+300"),
        (3e-9, "3e-09"),
    ],
)
def test_numbers_are_written_out_with_four_digits(value: float, text: str) -> None:
    assert words.number(value) == text


def test_a_reason_says_why() -> None:
    def why(state: JobState, **given: str | None) -> str:
        return words.reason(state, **{"waiting": None, "failure": None, "stop_reason": None, **given})

    assert why(JobState.QUEUED, waiting="needs 2") == "needs 2"
    assert why(JobState.FAILED, failure="exit code 1") == "exit code 1"
    assert why(JobState.STOPPED, stop_reason="max-runtime") == "Stopped at its maximum runtime"
    assert why(JobState.STOPPING, stop_reason="stop-requested") == "Stopping on request"
    assert why(JobState.TRAINING, waiting="old", failure="old") == words.STATES[JobState.TRAINING].meaning


@given(st.floats(0, 1e15))
def test_sizes_have_a_unit(count: float) -> None:
    number, unit = words.size(count).split(" ")
    assert unit in ("B", "KiB", "MiB", "GiB", "TiB")
    assert float(number) < 1025 or unit == "TiB"
