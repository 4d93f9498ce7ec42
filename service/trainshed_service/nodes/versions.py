"""The version of each agent's desired state, and waiting for the next one.

Invariants: a version never comes twice for different contents, over restarts too: it starts from the time of the
process start in milliseconds and only grows; a change that is made while nobody waits is seen by the next poll.
Processes of one installation that `learn` from each other come to the same versions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

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

    @property
    def first(self) -> int:
        """The version of agents that are not in `known`."""
        return self._first

    @property
    def known(self) -> dict[str, int]:
        return dict(self._versions)

    def bump(self, agent_ids: Iterable[str]) -> dict[str, int]:
        """What is desired of these agents has changed (and is committed). Their new versions."""
        now = int(self._clock.now() * 1000)
        fresh = {agent_id: max(self.current(agent_id) + 1, now) for agent_id in agent_ids}
        for agent_id, version in fresh.items():
            self._set(agent_id, version)
        return fresh

    def learn(self, bumped: Mapping[str, int], known: Mapping[str, int], first: int) -> None:
        """What another process has bumped, what it knew before, and its `first`."""
        if first > self._first:
            self._first = first
            self._answer([agent_id for agent_id in self._waiters if agent_id not in self._versions])
        for agent_id, version in known.items():
            if version > self.current(agent_id):
                self._set(agent_id, version)
        for agent_id, version in bumped.items():
            current = self.current(agent_id)
            # Not above ours: both bumped at once, and what the other changed is in nothing that ours was answered with.
            self._set(agent_id, version if version > current else current + 1)

    def bump_all(self) -> dict[str, int]:
        """What is desired of any agent may have changed."""
        self._first = max(self._first + 1, int(self._clock.now() * 1000))
        fresh = self.bump(self._versions)
        self._answer(list(self._waiters))
        return fresh

    def _set(self, agent_id: str, version: int) -> None:
        self._versions[agent_id] = version
        self._answer([agent_id])

    def _answer(self, agent_ids: Iterable[str]) -> None:
        for agent_id in agent_ids:
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
