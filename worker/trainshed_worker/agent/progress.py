"""How far a transfer is, in words: bytes, rate and time left, in the report each second, in the job's log now and then.

Invariant: a rate is that of the last seconds, so a transfer that has come to a halt says so instead of an old average.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Protocol

LOG_EVERY = 15.0
"""Seconds between two lines on the progress of a download in the job's log."""
_WINDOW = 10.0
_LEAST = 1.0
"""Seconds that must have passed before a rate is said."""


class Telling(Protocol):
    """What an assignment's state offers: the report's message, and a line in the job's log."""

    def progress(self, text: str) -> None: ...

    def say(self, text: str) -> None: ...


class Pace:
    """The rate over the last `_WINDOW` seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])
        self._lock = threading.Lock()

    def rate(self, done: int) -> float | None:
        """Bytes per second now that `done` bytes have gone; None: too early to say."""
        now = time.monotonic()
        with self._lock:
            if now - self._seen[-1][0] >= _LEAST / 4:
                self._seen.append((now, done))
            while len(self._seen) > 2 and now - self._seen[1][0] >= _WINDOW:
                self._seen.popleft()
            since, before = self._seen[0]
        return (done - before) / (now - since) if now - since >= _LEAST else None


class DownloadProgress:
    """Progress of one download, for `label`. Called with bytes done and in all, from any thread."""

    def __init__(self, state: Telling, label: str) -> None:
        self._state = state
        self._label = label
        self._logged = time.monotonic()
        self._pace = Pace()
        self._total = 0
        self._said = False

    def __call__(self, done: int, total: int) -> None:
        self._total = total
        text = f"{done / 1e6:.0f} of {total / 1e6:.0f} MB of {self._label}{_pace(self._pace.rate(done), total - done)}"
        self._state.progress(text)
        now = time.monotonic()
        if now - self._logged >= LOG_EVERY:
            self._logged = now
            self._said = True
            self._state.say(f"Downloading: {text}")

    def finished(self) -> None:
        if self._said:
            self._state.say(f"Downloaded {self._total / 1e6:.0f} MB of {self._label}")


class UploadProgress:
    """Progress of the uploads of one host, each by its label; how much an archive is going to be is not known."""

    def __init__(self, state: Telling) -> None:
        self._state = state
        self._paces: dict[str, Pace] = {}

    def __call__(self, label: str, done: int) -> None:
        pace = self._paces.setdefault(label, Pace())
        self._state.progress(f"uploaded {done / 1e6:.0f} MB of {label}{_pace(pace.rate(done))}")


def _pace(rate: float | None, left: int | None = None) -> str:
    if rate is None:
        return ""
    if rate <= 0:
        return ", nothing comes at the moment"
    text = f", {rate / 1e6:.1f} MB/s"
    return f"{text}, {_duration(left / rate)} left" if left else text


def _duration(seconds: float) -> str:
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
