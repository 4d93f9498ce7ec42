"""The only place that reads the wall clock. Everything else takes a `Clock`, so that tests can move time."""

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Epoch seconds (UTC)."""
        ...


class SystemClock:
    def now(self) -> float:
        return time.time()


class ManualClock:
    """A clock that stands still until it is told; for tests and simulation."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("a clock does not go back; make a new one")
        self._now += seconds
