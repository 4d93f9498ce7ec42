"""The version of each agent's desired state, and waiting for the next one.

Invariants: a version never comes twice for different contents, over restarts too: it starts from the time of the
process start in milliseconds and only grows; a change that is made while nobody waits is seen by the next poll.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from trainshed_service.clock import Clock


class DesiredVersions:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._first = int(clock.now() * 1000)
        self._versions: dict[str, int] = {}
        self._waiters: dict[str, asyncio.Event] = {}
        self._closed = False

    @property
    def is_closed(self) -> bool:
        return self._closed

    def current(self, agent_id: str) -> int:
        return self._versions.get(agent_id, self._first)

    def bump(self, agent_ids: Iterable[str]) -> None:
        """What is desired of these agents has changed (and is committed)."""
        now = int(self._clock.now() * 1000)
        for agent_id in agent_ids:
            self._versions[agent_id] = max(self.current(agent_id) + 1, now)
            waiter = self._waiters.pop(agent_id, None)
            if waiter is not None:
                waiter.set()

    async def wait_for_other(self, agent_id: str, version: int, seconds: float) -> int:
        """Return the current version as soon as it is not `version`, or after `seconds`."""
        if self.current(agent_id) != version or self._closed or seconds <= 0:
            return self.current(agent_id)
        waiter = self._waiters.setdefault(agent_id, asyncio.Event())
        try:
            async with asyncio.timeout(seconds):
                await waiter.wait()
        except TimeoutError:
            pass  # the time is over: the answer is the version as it is
        return self.current(agent_id)

    def close(self) -> None:
        """Let every waiting poll answer now: the process is about to end."""
        self._closed = True
        for waiter in self._waiters.values():
            waiter.set()
        self._waiters.clear()
