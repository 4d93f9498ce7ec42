"""Gangs whose members are all on this agent: they start together as soon as the last of them is ready, without asking.

Invariant: no process of a gang starts before every member has been ready. Used on the event loop; nothing is stored:
an agent that restarts waits for the service's word, which comes for every gang.
"""

from collections.abc import Awaitable, Callable

Notify = Callable[[], Awaitable[None]]


class Gangs:
    """Who is ready, by attempt."""

    def __init__(self) -> None:
        self._ready: dict[str, dict[str, Notify]] = {}
        self._complete: set[str] = set()

    async def ready(self, attempt_id: str, member: str, size: int, notify: Notify) -> None:
        """`member` is ready; where it is the last of `size`, all are notified."""
        members = self._ready.setdefault(attempt_id, {})
        members[member] = notify
        if len(members) == size and attempt_id not in self._complete:
            self._complete.add(attempt_id)
            for each in list(members.values()):
                await each()

    def is_complete(self, attempt_id: str) -> bool:
        """True once all were ready."""
        return attempt_id in self._complete

    def leave(self, attempt_id: str, member: str) -> None:
        """`member` is gone; the attempt is forgotten with its last one."""
        members = self._ready.get(attempt_id)
        if members is None:
            return
        members.pop(member, None)
        if not members:
            del self._ready[attempt_id]
            self._complete.discard(attempt_id)
