"""Questions that change nothing: why a job waits, its place, when it is going to start, what a new one would get.

A projection is a promise of nobody: it takes jobs in today's order, with the time that jobs like them took (else their
limit), and does not know of jobs that are yet to come.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from trainshed_service.scheduling.events import JobQueued
from trainshed_service.scheduling.pooling import takes_pool
from trainshed_service.scheduling.queue import Waiting
from trainshed_service.scheduling.state import State, order_nodes
from trainshed_service.scheduling.walk import Walk
from trainshed_service.scheduling.words import moment, reason

MOST_PROJECTED = 1000
_EXPECTED_MORE_SECONDS = 60.0


@dataclass(frozen=True)
class Preview:
    """`nodes` by rank where the job would start at once (`pool`: on that warm pool), else why it would wait."""

    nodes: tuple[str, ...] | None
    pool: str | None
    reason: str | None
    ahead: int
    projected_start: float | None


def explain(state: State, job_id: int) -> str | None:
    """Why a job waits and how many wait before it. None: it is not in the queue."""
    waiting = state.queue.jobs.get(job_id)
    if waiting is None:
        return None
    ahead = place(state, job_id)
    words = reason(state, waiting)
    return f"{words}; {ahead} job{'s' if ahead > 1 else ''} ahead in the queue" if ahead else words


def place(state: State, job_id: int) -> int | None:
    """How many jobs come before this one."""
    if job_id not in state.queue:
        return None
    return state.queue.ahead(job_id, state.shares, state.warp())


def preview(state: State, job: JobQueued, now: float) -> Preview:
    """What a job would get if it came now. The state is as before afterwards."""
    before, state.now = state.now, max(state.now, now)
    state.queue.add(job, state.shares, state.warp())
    try:
        waiting = state.queue.jobs[job.job_id]
        pool = takes_pool(state, waiting)
        if pool is not None:
            return Preview(tuple(pool.types), str(pool.key), None, 0, state.now)
        scope = set(waiting.shape.components(state.fleet))
        done = not scope
        while not done:
            walk = Walk(state, scope, only=job.job_id)
            done = walk.run()
            if walk.allocation is not None:
                nodes = order_nodes(job, state.fleet.choose(walk.allocation, job.avoid, to_hold=False))
                return Preview(nodes, None, None, 0, state.now)
        ahead = state.queue.ahead(job.job_id, state.shares, state.warp())
        start = Projection(state, state.now).starts.get(job.job_id)
        return Preview(None, None, explain(state, job.job_id), ahead, start)
    finally:
        state.queue.remove(job.job_id)
        state.now = before


def with_start(words: str, start: float | None) -> str:
    """The reason with its projected start."""
    return words if start is None else f"{words}; projected start {moment(start)}"


class Projection:
    """When the jobs that wait are going to start: each takes the nodes that come free first, in order."""

    def __init__(self, state: State, now: float) -> None:
        self.made_at = max(now, state.now)
        self.starts: dict[int, float] = {}
        self._state = state
        self._free: list[list[tuple[float, int]]] = [
            _comes_free(state, cls.index, self.made_at) for cls in state.fleet.classes
        ]
        for waiting in in_order(state, MOST_PROJECTED):
            self._start(waiting)

    def _start(self, waiting: Waiting) -> None:
        job, shape, fleet = waiting.job, waiting.shape, self._state.fleet
        if not shape.ever(fleet) or self._state.quotas.broken(job.user_id, job.role_arn, shape.needs):
            return
        start = self.made_at
        taken: list[tuple[int, float, int]] = []
        for name, missing in shape.needs:
            while missing:
                at = min(
                    (index for index in fleet.accepting(name) if self._free[index]),
                    key=lambda index: self._free[index][0][0],
                    default=None,
                )
                if at is None:
                    for cls, time, count in taken:
                        heapq.heappush(self._free[cls], (time, count))
                    return
                time, count = heapq.heappop(self._free[at])
                if count > missing:
                    heapq.heappush(self._free[at], (time, count - missing))
                    count = missing
                missing -= count
                start = max(start, time)
                taken.append((at, time, count))
        seconds = job.expected_seconds if job.expected_seconds is not None else job.max_runtime_seconds
        for cls, _, count in taken:
            heapq.heappush(self._free[cls], (start + seconds, count))
        self.starts[job.job_id] = start


def _comes_free(state: State, index: int, now: float) -> list[tuple[float, int]]:
    """A heap of (when, how many nodes), by expected ends where they are known."""
    cls = state.fleet.classes[index]
    found = [(now, state.fleet.free[index])] if state.fleet.free[index] else []
    for end, _, holding in cls.ends:
        expected = holding.expected_end
        if expected is None or expected > end:
            expected = end
        elif expected <= now:
            expected = min(end, now + _EXPECTED_MORE_SECONDS)  # it takes longer than those before it
        found.append((max(expected, now), holding.counts[index]))
    heapq.heapify(found)
    return found


def in_order(state: State, most: int, user_id: int | None = None) -> list[Waiting]:
    """The first jobs of the queue, in order; of one user where given."""
    queue, shares, warp = state.queue, state.shares, state.warp()
    first = queue.first_ids(most, user_id)
    keys = {user: shares.key(user, warp) for user in {queue.jobs[job_id].job.user_id for job_id in first}}

    def order(job_id: int) -> tuple[int, float, int]:
        job = queue.jobs[job_id].job
        return (-job.priority, keys[job.user_id], job_id)

    return [queue.jobs[job_id] for job_id in heapq.nsmallest(most, first, key=order)]
