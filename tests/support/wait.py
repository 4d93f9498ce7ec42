"""Waiting on a condition with a deadline; no test sleeps for a fixed time.

A deadline says how long something may take on a machine that has a core for each of its busy processes. Where more are
busy than there are cores, everything takes longer in proportion, and that is no fault of what is tested.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from threading import Event
from typing import TypeVar

T = TypeVar("T")


def patient(seconds: float) -> float:
    """The deadline `seconds`, longer by how much the machine is overloaded now."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def wait_until(condition: Callable[[], T], *, timeout: float = 30.0, every: float = 0.05, what: str = "") -> T:
    """Return the first true value of `condition()`; fail with the last one after `patient(timeout)` seconds."""
    pause = Event()
    timeout = patient(timeout)
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:.0f} s: {what or condition}; last value: {value!r}")
        pause.wait(every)


async def wait_until_async(
    condition: Callable[[], T], *, within: float = 30.0, every: float = 0.01, what: str = ""
) -> T:
    """`wait_until` inside an event loop, which goes on meanwhile."""
    seconds = patient(within)
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {what or condition}; last value: {value!r}")
        await asyncio.sleep(every)
    return value
