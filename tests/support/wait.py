"""Waiting on a condition with a deadline; no test sleeps for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], *, timeout: float = 30.0, every: float = 0.05, what: str = "") -> T:
    """Return the first true value of `condition()`; fail with the last one after `timeout` seconds."""
    pause = Event()
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what or condition}; last value: {value!r}")
        pause.wait(every)
