"""Failed logins are counted, per address and for all together: guessing is slow, and honest users are not locked out.

Invariant: within any `WINDOW_SECONDS` one address fails at most `PER_ADDRESS` times and all addresses together at most
`TOGETHER` times; what is beyond is refused before a secret is looked at. Memory is bounded.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from trainshed_service.clock import Clock

WINDOW_SECONDS = 60.0
PER_ADDRESS = 10
TOGETHER = 200
_ADDRESSES = 4096


class FailureLimiter:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_address: OrderedDict[str, deque[float]] = OrderedDict()
        self._all: deque[float] = deque()

    def wait_seconds(self, address: str) -> float:
        """0 where the address may try; else how long it must wait."""
        return max(
            self._wait(self._by_address.get(address, deque()), PER_ADDRESS),
            self._wait(self._all, TOGETHER),
        )

    def failed(self, address: str) -> None:
        now = self._clock.now()
        times = self._by_address.setdefault(address, deque(maxlen=PER_ADDRESS))
        self._by_address.move_to_end(address)
        times.append(now)
        self._all.append(now)
        if len(self._all) > TOGETHER:
            self._all.popleft()
        if len(self._by_address) > _ADDRESSES:
            self._by_address.popitem(last=False)

    def _wait(self, times: deque[float], most: int) -> float:
        if len(times) < most:
            return 0.0
        return max(0.0, times[-most] + WINDOW_SECONDS - self._clock.now())
