"""What will be free when, by the limits of what runs: the ground on which it is proven that a job delays nobody.

A `Future` is drawn for one decision. Of each class of nodes it keeps what is free now and the ends of what is held (by
the jobs' maximum runtimes and the pools' expiry), less what has been set aside for jobs that wait, in their order.

Invariant: nothing that is placed within `window` of all that is set aside can make any of it later.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right

from trainshed_service.scheduling.events import Needs
from trainshed_service.scheduling.fleet import Fleet, Holding
from trainshed_service.scheduling.matching import Allocation, fit

LATE_SECONDS = 30.0
"""What should have ended by now is expected any moment; what is later than this …"""
LATE_MORE_SECONDS = 60.0
"""… is expected in so many seconds: its limit proves nothing any more."""


class _Base:
    """Free nodes of one class, a staircase that only rises: `totals[i]` from `times[i]` on. Drawn as far as needed."""

    __slots__ = ("_at", "_ends", "_index", "_late", "times", "totals")

    def __init__(self, now: float, free: int, ends: list[tuple[float, int, Holding]], index: int) -> None:
        self.times = [now]
        self.totals = [free]
        self._ends = ends
        self._index = index
        self._at = bisect_left(ends, (now - LATE_SECONDS,))
        late = sum(holding.counts[index] for _, _, holding in ends[: self._at])
        self._late = (now + LATE_MORE_SECONDS, late) if late else None

    def more(self) -> bool:
        """Draw one more stair; False at the end."""
        end = self._ends[self._at][0] if self._at < len(self._ends) else math.inf
        if self._late is not None and self._late[0] <= end:
            end, count = self._late
            self._late = None
        elif self._at < len(self._ends):
            count = self._ends[self._at][2].counts[self._index]
            self._at += 1
        else:
            return False
        time = end if end > self.times[0] else self.times[0]
        total = self.totals[-1] + count
        if time == self.times[-1]:
            self.totals[-1] = total
        else:
            self.times.append(time)
            self.totals.append(total)
        return True

    def at(self, time: float) -> int:
        while self.times[-1] <= time and self.more():
            pass
        return self.totals[bisect_right(self.times, time) - 1]

    def after(self, time: float) -> float:
        """When the next stair comes; infinity where none does."""
        while self.times[-1] <= time and self.more():
            pass
        place = bisect_right(self.times, time)
        return self.times[place] if place < len(self.times) else math.inf

    def when(self, total: int) -> float:
        """From when on there are so many; infinity: never."""
        while self.totals[-1] < total and self.more():
            pass
        if self.totals[-1] < total:
            return math.inf
        return self.times[bisect_left(self.totals, total)]


Span = tuple[float, float, int, bool]
"""From, until, nodes, and whether the span is certain (else its start is a lower bound and it never ends)."""


class Future:
    def __init__(self, fleet: Fleet, now: float) -> None:
        self._fleet = fleet
        self._now = now
        self._bases: dict[int, _Base] = {}
        self._spans: dict[int, list[Span]] = {}

    def base(self, cls: int) -> _Base:
        found = self._bases.get(cls)
        if found is None:
            ends = list(self._fleet.classes[cls].ends)
            found = self._bases[cls] = _Base(self._now, self._fleet.free[cls], ends, cls)
            self._spans[cls] = []
        return found

    def knows(self, cls: int) -> bool:
        """Whether the class was drawn already: what is placed from now on has to be told by `put`."""
        return cls in self._bases

    def put(self, allocation: Allocation, start: float, end: float, *, certain: bool = True) -> None:
        """Set nodes aside (or, from now on, give them to a job)."""
        for _, cls, count in allocation:
            self.base(cls)
            self._spans[cls].append((start, end, count, certain))

    def window(self, cls: int, start: float, end: float, *, certain: bool = False) -> int:
        """How many nodes of the class are there all the time from `start` to `end`, by all or only by certain spans."""
        base = self.base(cls)
        spans = self._spans[cls]
        lowest = base.at(start)
        if not spans:
            return lowest
        moments = [start, *(span[0] for span in spans if start < span[0] < end)]
        result = None
        for moment in moments:
            taken = sum(
                count for begin, finish, count, sure in spans if begin <= moment < finish and (sure or not certain)
            )
            there = (lowest if moment == start else base.at(moment)) - taken
            if result is None or there < result:
                result = there
        assert result is not None
        return result

    def counts(self, classes: frozenset[int], start: float, end: float, *, certain: bool = False) -> list[int]:
        counts = [0] * len(self._fleet.classes)
        for cls in classes:
            counts[cls] = self.window(cls, start, end, certain=certain)
        return counts

    def earliest(self, needs: Needs, classes: frozenset[int], seconds: float) -> tuple[float, Allocation] | None:
        """When a gang can start at the earliest by all certain spans, and where. None: never."""
        time = self._now
        if len(classes) == 1 and len(needs) == 1:
            (cls,) = classes
            time = self.base(cls).when(needs[0][1])
        while time < math.inf:
            counts = self.counts(classes, time, time + seconds, certain=True)
            found = fit(needs, counts, self._fleet.accepting)
            if found is not None:
                return time, found
            time = self.next_more(classes, time)
        return None

    def next_more(self, classes: frozenset[int], time: float) -> float:
        """The next moment at which there may be more, by all certain spans."""
        moments = [self.base(cls).after(time) for cls in classes]
        moments += [span[1] for cls in classes for span in self._spans[cls] if span[1] > time and span[3]]
        return min(moments, default=math.inf)
