"""Failed logins slow down whoever fails."""

from __future__ import annotations

from trainshed_service.clock import ManualClock
from trainshed_service.dashboard.limits import PER_ADDRESS, TOGETHER, WINDOW_SECONDS, FailureLimiter


def test_an_address_waits_after_ten_failures_and_others_do_not() -> None:
    clock = ManualClock()
    limiter = FailureLimiter(clock)
    for _ in range(PER_ADDRESS):
        assert limiter.wait_seconds("a") == 0
        limiter.failed("a")
        clock.advance(1)
    assert limiter.wait_seconds("a") == WINDOW_SECONDS - PER_ADDRESS
    assert limiter.wait_seconds("b") == 0
    clock.advance(WINDOW_SECONDS - PER_ADDRESS)
    assert limiter.wait_seconds("a") == 0


def test_many_addresses_together_wait_too() -> None:
    clock = ManualClock()
    limiter = FailureLimiter(clock)
    for index in range(TOGETHER):
        limiter.failed(f"address {index}")
    assert limiter.wait_seconds("a new one") == WINDOW_SECONDS
    clock.advance(WINDOW_SECONDS)
    assert limiter.wait_seconds("a new one") == 0
