"""What will be free when, by the limits of what runs: the ground on which it is proven that a job delays nobody.

A `Future` is drawn for one look at the queue. Of each class of nodes it keeps what is free now and the ends of what is
held (by the jobs' maximum runtimes and the pools' expiry), less what has been set aside for jobs that wait, in order.

Invariant: nothing that is placed within `window` of all that is set aside can make any of it later.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from trainshed_service.scheduling.events import Needs
from trainshed_service.scheduling.fleet import Fleet, Holding
from trainshed_service.scheduling.matching import Allocation, fit

LATE_SECONDS = 30.0
"""What should have ended by now is expected any moment; what is later than this …"""
LATE_MORE_SECONDS = 60.0
"""… is expected in so many seconds: its limit proves nothing any more."""
_MOST_MOMENTS = 64


class _Base:
    """Free nodes of one class, a staircase that only rises: `totals[i]` from `times[i]` on. Drawn as far as needed."""

    __slots__ = ("_at", "_ends", "_index", "_is_kept", "_late", "times", "totals")

    def __init__(self, now: float, free: int, ends: list[tuple[float, int, Holding]], index: int) -> None:
        self.times = [now]
        self.totals = [free]
        self._ends = ends
        self._is_kept = False
        self._index = index
        self._at = bisect_left(ends, (now - LATE_SECONDS,))
        late = sum(holding.counts[index] for _, _, holding in ends[: self._at])
        self._late = (now + LATE_MORE_SECONDS, late) if late else None

    def keep(self) -> None:
        """The fleet's list is about to change: go on with a copy of what is left of it."""
        if not self._is_kept:
            self._ends, self._at, self._is_kept = self._ends[self._at :], 0, True

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
        times = self.times
        while times[-1] <= time and self.more():
            pass
        return self.totals[bisect_right(times, time) - 1]

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


class _Aside:
    """What is set aside of one class: `amounts[i]` from `times[i]` on."""

    __slots__ = ("amounts", "times")

    def __init__(self) -> None:
        self.times = [-math.inf]
        self.amounts = [0]

    def put(self, start: float, end: float, count: int) -> None:
        first = self._cut(start)
        last = self._cut(end) if end < math.inf else len(self.times)
        for place in range(first, last):
            self.amounts[place] += count

    def after(self, time: float) -> float:
        place = bisect_right(self.times, time)
        return self.times[place] if place < len(self.times) else math.inf

    def _cut(self, time: float) -> int:
        place = bisect_left(self.times, time)
        if place == len(self.times) or self.times[place] != time:
            self.times.insert(place, time)
            self.amounts.insert(place, self.amounts[place - 1])
        return place


class Future:
    def __init__(self, fleet: Fleet, now: float) -> None:
        self._fleet = fleet
        self._now = now
        self._lines: dict[int, tuple[_Base, _Aside, _Aside]] = {}
        """Class → what is going to be free, all that is set aside, and what of it is certain."""

    def keep(self, cls: int) -> bool:
        """Whether the class was drawn already: what is placed from now on has to be told by `put`. To be called before
        it is placed."""
        line = self._lines.get(cls)
        if line is None:
            return False
        line[0].keep()
        return True

    def put(
        self, allocation: Iterable[tuple[str, int, int]], start: float, end: float, *, certain: bool = True
    ) -> None:
        """Set nodes aside (or, from now on, give them to a job). Not certain: `start` is a lower bound, `end` none."""
        for _, cls, count in allocation:
            _, every, sure = self._lines.get(cls) or self._draw(cls)
            every.put(start, end, count)
            if certain:
                sure.put(start, end, count)

    def count(self, cls: int, start: float, end: float) -> int:
        """`counts`, of one class."""
        base, every, _ = self._lines.get(cls) or self._draw(cls)
        return self._window(base, every, start, end)

    def counts(self, classes: frozenset[int], start: float, end: float) -> list[int]:
        """How many nodes of each class are there all the time from `start` to `end`, beside all that is set aside."""
        counts = [0] * len(self._fleet.classes)
        for cls in classes:
            base, every, _ = self._lines.get(cls) or self._draw(cls)
            counts[cls] = self._window(base, every, start, end)
        return counts

    def earliest(self, needs: Needs, classes: frozenset[int], seconds: float) -> tuple[float, Allocation | None] | None:
        """When a gang can start at the earliest beside all that is certain, and where. None: never.

        Without an allocation the time is a lower bound only: finding the very moment would take too long.
        """
        if len(classes) == 1 and len(needs) == 1:
            (cls,), (name, count) = classes, needs[0]
            base, _, sure = self._lines.get(cls) or self._draw(cls)
            time = self._first_hole(base, sure, count, seconds)
            return (time, ((name, cls, count),)) if time < math.inf else None
        time = self._now
        for name, count in needs:
            usable = self._fleet.accepting(name)
            if len(usable) == 1:
                base, _, _ = self._lines.get(usable[0]) or self._draw(usable[0])
                time = max(time, base.when(count))
        for _ in range(_MOST_MOMENTS):
            if time == math.inf:
                return None
            counts = [0] * len(self._fleet.classes)
            for cls in classes:
                base, _, sure = self._lines.get(cls) or self._draw(cls)
                counts[cls] = self._window(base, sure, time, time + seconds)
            found = fit(needs, counts, self._fleet.accepting)
            if found is not None:
                return time, found
            time = self.next_more(classes, time)
        return time, None

    def before(self, cls: int, needs: Needs, seconds: float) -> tuple[float, int] | None:
        """When a gang that needs one class can start beside all that is certain, and what is left then. None: never."""
        (_, count), *_ = needs
        base, _, sure = self._lines.get(cls) or self._draw(cls)
        time = self._first_hole(base, sure, count, seconds)
        if time == math.inf:
            return None
        return time, base.at(time) - count

    def next_more(self, classes: frozenset[int], time: float) -> float:
        """The next moment at which there may be more, by all that is certain."""
        soonest = math.inf
        for cls in classes:
            base, _, sure = self._lines.get(cls) or self._draw(cls)
            soonest = min(soonest, base.after(time), sure.after(time))
        return soonest

    def _draw(self, cls: int) -> tuple[_Base, _Aside, _Aside]:
        base = _Base(self._now, self._fleet.free[cls], self._fleet.classes[cls].ends, cls)
        line = self._lines[cls] = (base, _Aside(), _Aside())
        return line

    def _window(self, base: _Base, aside: _Aside, start: float, end: float) -> int:
        times, amounts = aside.times, aside.amounts
        place = bisect_right(times, start) - 1
        most = amounts[place]
        lowest = base.at(start) - most
        place += 1
        while place < len(times) and times[place] < end:
            if amounts[place] > most:  # else there is no less than before: what is free only rises
                most = amounts[place]
                there = base.at(times[place]) - most
                if there < lowest:
                    lowest = there
            place += 1
        return lowest

    def _first_hole(self, base: _Base, aside: _Aside, count: int, seconds: float) -> float:
        """From when on `count` nodes are there for so many seconds: what is free only rises within a stretch."""
        times, amounts = aside.times, aside.amounts
        start = self._now
        place = bisect_right(times, start) - 1
        while True:
            end = times[place + 1] if place + 1 < len(times) else math.inf
            enough = base.when(count + amounts[place])
            if enough >= end:
                if end == math.inf:
                    return math.inf
                start = end
            else:
                if enough > start:
                    start = enough
                if start + seconds <= end:
                    return start
            place += 1
