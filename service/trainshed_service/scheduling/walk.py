"""One look at the queue, in its order: places what can be placed, and lets jobs overtake only where it delays nobody.

Jobs compete within a *component* (nodes that may serve the same types); a look is confined to the components in which
something changed. A job that is blocked has the nodes for its earliest start set aside; one behind it is placed only
where it fits beside all that is set aside, for its whole maximum runtime. So by the limits of what runs, no job that
comes before another is later because of it.

Invariants:

* What is set aside is exact for the first `MOST_BLOCKED` jobs. Jobs that also need nodes outside of the look have
  theirs set aside from a lower bound of their start, for ever. Behind that, a job is placed only if it ends before
  anything more comes free, which is before any of those can start.
* Jobs that no present nodes could ever hold, or that a quota makes wait, set nothing aside.
* The look ends after `MOST_LOOKED_AT` jobs, however long the queue is.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from trainshed_service.scheduling.events import Place
from trainshed_service.scheduling.matching import Allocation, fit
from trainshed_service.scheduling.profile import Future
from trainshed_service.scheduling.queue import Entry, LaneKey, Level, Shape, Track, Waiting
from trainshed_service.scheduling.state import State

MOST_BLOCKED = 32
MOST_LOOKED_AT = 160


class _Stream:
    """The users of one track in order, priority after priority."""

    __slots__ = ("level", "levels", "track")

    def __init__(self, track: Track) -> None:
        self.track = track
        self.levels = sorted(track.levels, reverse=True)
        self.level = 0


class _Cursor:
    """A user's jobs in one track and priority, in the order of their age."""

    __slots__ = ("entry", "heads", "level", "priority")

    def __init__(self, priority: int, level: Level, entry: Entry) -> None:
        self.priority = priority
        self.level = level
        self.entry = entry
        self.heads: list[tuple[int, int, LaneKey, list[int]]] = []


@dataclass(slots=True)
class _Blocked:
    waiting: Waiting
    classes: frozenset[int]
    certain: bool


@dataclass
class Look:
    """What came of it. `blocked`: jobs that wait for capacity, first in order first."""

    places: list[Place] = field(default_factory=list)
    blocked: list[Waiting] = field(default_factory=list)


class Walk:
    def __init__(self, state: State, scope: set[int], *, only: int | None = None) -> None:
        """`only`: nothing is placed but this job is asked about (a preview)."""
        self._state = state
        self._fleet = state.fleet
        self._scope = scope
        self._only = only
        self._warp = state.warp()
        self._future = Future(state.fleet, state.now)
        self._blocked: list[_Blocked] = []
        self._set_aside = 0
        self._counts: dict[int, int] = {}
        self._until: dict[int, float] = {}
        self._popped: list[tuple[Level, Entry]] = []
        self.allocation: Allocation | None = None
        """Of `only`, where it can be placed now."""
        self.look = Look()

    def run(self) -> bool:
        """False: the scope had to grow (it has), and the walk is to be made anew."""
        try:
            return self._run()
        finally:
            for level, entry in self._popped:
                if entry.ids and level.entries.get(entry.user_id) is entry:
                    level.push(entry, self._state.shares, self._warp)

    def _run(self) -> bool:
        free = self._fleet.free
        usable = [cls.index for cls in self._fleet.classes if cls.component in self._scope]
        looked = 0
        for cursor, waiting, lane in self._ordered():
            placed = False
            job, shape = waiting.job, waiting.shape
            if self._state.quotas.broken(job.user_id, job.role_arn, shape.needs):
                continue  # nor can the rest of its lane; the cursor goes on with the next one
            looked += 1
            allocation = shape.fits(self._fleet)
            if allocation is not None:
                outside = shape.components(self._fleet) - self._scope
                if outside:
                    self._scope |= outside
                    return False
                allocation = self._avoiding(waiting) or self._proven(waiting, allocation)
            if self._only == job.job_id:
                self.allocation = allocation
                return True
            if allocation is not None and self._only is None:
                self._place(waiting, allocation)
                placed = True
            elif allocation is None:
                self._block(waiting)
            self._push_next(cursor, lane, placed, job.job_id)
            if looked >= MOST_LOOKED_AT:
                return True
            if self._only is None and self._blocked and not any(free[index] for index in usable):
                return True
        return True

    # -- the order -------------------------------------------------------------------------------------------------

    def _ordered(self) -> Iterator[tuple[_Cursor, Waiting, tuple[LaneKey, list[int]]]]:
        shares, queue, warp = self._state.shares, self._state.queue, self._warp
        self._heap: list[tuple[int, float, int, int, _Stream | _Cursor]] = []
        self._count = 0
        for track in queue.tracks.values():
            if not self._fleet.components(track.types).isdisjoint(self._scope):
                self._push_stream(_Stream(track))
        while self._heap:
            _, key, _, _, source = heapq.heappop(self._heap)
            if isinstance(source, _Stream):
                priority = source.levels[source.level]
                level = source.track.levels[priority]
                top = level.top(shares, warp)
                assert top is not None
                level.pop()
                entry = top[2]
                self._popped.append((level, entry))
                cursor = _Cursor(priority, level, entry)
                self._fill(cursor)
                self._push_cursor(cursor, key)
                self._push_stream(source)
                continue
            _, at, lane_key, lane = heapq.heappop(source.heads)
            self._at = at
            yield source, queue.jobs[lane[at]], (lane_key, lane)
            self._push_cursor(source, shares.key(source.entry.user_id, warp))

    def _push_stream(self, stream: _Stream) -> None:
        while stream.level < len(stream.levels):
            priority = stream.levels[stream.level]
            level = stream.track.levels.get(priority)
            top = level.top(self._state.shares, self._warp) if level is not None else None
            if top is not None:
                self._count += 1
                heapq.heappush(self._heap, (-priority, top[0], top[1], self._count, stream))
                return
            stream.level += 1

    def _fill(self, cursor: _Cursor) -> None:
        fleet, entry = self._fleet, cursor.entry
        if self._state.quotas.rules:
            least = tuple((name, 1) for lane in entry.lanes for name in lane[0].types)[:1]
            if self._state.quotas.broken(entry.user_id, "", least):
                return  # nothing more for this user, however small
        cursor.heads = [(lane[0], 0, key, lane) for key, lane in cursor.entry.lanes.items() if key[0].ever(fleet)]
        heapq.heapify(cursor.heads)

    def _push_cursor(self, cursor: _Cursor, key: float) -> None:
        if cursor.heads:
            self._count += 1
            heapq.heappush(self._heap, (-cursor.priority, key, cursor.heads[0][0], self._count, cursor))

    def _push_next(self, cursor: _Cursor, lane: tuple[LaneKey, list[int]], placed: bool, job_id: int) -> None:
        key, ids = lane
        at = self._at if placed else self._at + 1  # a placed one is not in the lane any more
        if at < len(ids):
            heapq.heappush(cursor.heads, (ids[at], at, key, ids))

    # -- may it start ----------------------------------------------------------------------------------------------

    def _avoiding(self, waiting: Waiting) -> Allocation | None:
        """Where it can start without a node that it is to avoid; None: nowhere, or it has none to avoid."""
        avoid = [node for name in waiting.job.avoid if (node := self._fleet.nodes.get(name)) and node.holding is None]
        if not avoid:
            return None
        others = list(self._fleet.free)
        for node in avoid:
            others[node.cls.index] -= 1
        allocation = fit(waiting.shape.needs, others, self._fleet.accepting)
        return self._proven(waiting, allocation, others) if allocation is not None else None

    def _proven(self, waiting: Waiting, allocation: Allocation, most: list[int] | None = None) -> Allocation | None:
        """Where the job can start now without making any job before it later; None: nowhere that can be proven.

        `allocation` is where it could start if nobody waited before it; `most`: of each class at most so many nodes.
        """
        shape, now = waiting.shape, self._state.now
        classes = shape.classes(self._fleet)
        rivals = {index for index, rival in enumerate(self._blocked) if not rival.classes.isdisjoint(classes)}
        if not rivals and self._until.keys().isdisjoint(classes):
            return allocation
        if not self._state.policy.backfill:
            return None
        end = now + waiting.job.max_runtime_seconds
        if any(end > self._until.get(cls, math.inf) for cls in classes):
            return None
        # What is set aside only grows: where the job fails beside the first ones, the rest need not be looked at.
        last = max(rivals, default=-1)
        while self._set_aside <= last:
            self._put_aside(self._blocked[self._set_aside])
            self._set_aside += 1
            if self._set_aside - 1 in rivals and self._beside(shape, classes, end, most) is None:
                return None
        return self._beside(shape, classes, end, most)

    def _beside(self, shape: Shape, classes: frozenset[int], end: float, most: list[int] | None) -> Allocation | None:
        """Where it fits from now until `end` beside all that is set aside so far."""
        counts = self._future.counts(classes, self._state.now, end)
        # What should have ended by now counts as back in the future, but is not.
        counts = [min(pair) for pair in zip(counts, most if most is not None else self._fleet.free, strict=True)]
        return fit(shape.needs, counts, self._fleet.accepting)

    def _put_aside(self, blocked: _Blocked) -> None:
        job, shape = blocked.waiting.job, blocked.waiting.shape
        start = self._future.earliest(shape.needs, blocked.classes, job.max_runtime_seconds)
        if start is None:
            return  # cannot be: it fits all present nodes
        time, allocation = start
        end = time + job.max_runtime_seconds if blocked.certain else math.inf
        self._future.put(allocation, time, end, certain=blocked.certain)

    def _place(self, waiting: Waiting, allocation: Allocation) -> None:
        now = self._state.now
        drawn = tuple(part for part in allocation if self._future.knows(part[1]))
        self.look.places.append(self._state.place(waiting, allocation))
        self._future.put(drawn, now, now + waiting.job.max_runtime_seconds)

    def _block(self, waiting: Waiting) -> None:
        shape = waiting.shape
        classes = shape.classes(self._fleet)
        self.look.blocked.append(waiting)
        if any(self._counts.get(cls, 0) >= MOST_BLOCKED for cls in classes):
            soonest = self._future.next_more(self._around(classes), self._state.now)
            for cls in classes:
                self._until[cls] = min(self._until.get(cls, math.inf), soonest)
            return
        inside = shape.components(self._fleet) <= self._scope
        certain = inside and not any(
            not rival.certain and not rival.classes.isdisjoint(classes) for rival in self._blocked
        )
        self._blocked.append(_Blocked(waiting, classes, certain))
        for cls in classes:
            self._counts[cls] = self._counts.get(cls, 0) + 1

    def _around(self, classes: frozenset[int]) -> frozenset[int]:
        components = {self._fleet.classes[cls].component for cls in classes}
        return frozenset(cls.index for cls in self._fleet.classes if cls.component in components)
