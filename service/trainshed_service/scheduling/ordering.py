"""The waiting jobs of some components one by one, in the queue's order, without looking at more of them than are taken.

Invariant: the queue's heaps are as before when it is closed, whatever was placed meanwhile.

What is looked at most is the first job of one user after another; a user's jobs are therefore taken in the order of
their age, and put in order by their lanes only where a lane is left out.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable

from trainshed_service.scheduling.queue import Entry, LaneKey, Level, LevelItem, Track, Waiting
from trainshed_service.scheduling.state import State


class _Stream:
    """The users of one track in order, priority after priority. `entry` was the first one at `moment`."""

    __slots__ = ("at", "entry", "is_over", "level", "moment", "priorities", "track")

    def __init__(self, track: Track) -> None:
        self.track = track
        self.priorities = track.priorities
        self.at = 0
        self.is_over = False
        self.level: Level | None = None
        self.entry: Entry | None = None
        self.moment = -1


class _Cursor:
    """A user's jobs in one track and priority, in the order of their age: `entry.ids` from `at` on, or, where lanes
    are left out, the next one of each lane in the heap `heads`."""

    __slots__ = ("at", "entry", "heads", "rank")

    def __init__(self, rank: int, entry: Entry) -> None:
        self.rank = rank
        """The negative priority."""
        self.entry = entry
        self.at = 0
        self.heads: list[tuple[int, int, LaneKey, list[int]]] | None = None


_Item = tuple[int, float, int, int, _Stream | _Cursor]


class Order:
    def __init__(self, state: State, scope: set[int]) -> None:
        self._state = state
        self._warp = state.warp()
        self._heap: list[_Item] = []
        self._count = 0
        self._moment = 0
        """Grows with each job that is placed: somebody's usage is another then."""
        self._popped: list[tuple[Level, LevelItem]] = []
        self._cursor: _Cursor | None = None
        self._at = 0
        self._lane: tuple[LaneKey, list[int]] | None = None
        self._left_out = False
        self._given = 0
        self._last_opened: _Stream | None = None
        self._tracks = state.queue.tracks_near(state.fleet, scope)
        for track in self._tracks:
            self._push_stream(_Stream(track))

    def next(self) -> Waiting | None:
        """The next job; the rest of the last one's lane comes only after `go_on`."""
        heap, cursor = self._heap, self._cursor
        source: _Stream | _Cursor | None = None
        if cursor is not None:
            if self._left_out and cursor.heads is None:
                self._leave_out(cursor)
            head = self._head(cursor)
            if head is not None:
                self._count += 1
                account = cursor.entry.account
                key = account.offset + account.held * self._warp
                source = heapq.heappushpop(heap, (cursor.rank, key, head, self._count, cursor))[4]
        if source is None and heap:
            source = heapq.heappop(heap)[4]
        while isinstance(source, _Stream):
            source = self._open(source)
            if source is None and heap:
                source = heapq.heappop(heap)[4]
        self._cursor = source
        if source is None:
            return None
        self._left_out = True  # unless `go_on` is called
        self._given += 1
        if source.heads is None:
            return self._state.queue.jobs[source.entry.ids[source.at]]
        _, self._at, key_of_lane, lane = heapq.heappop(source.heads)
        self._lane = (key_of_lane, lane)
        return self._state.queue.jobs[lane[self._at]]

    def go_on(self, *, placed: bool) -> None:
        """Look at the rest of the lane too. A job that was `placed` is not in it any more."""
        cursor = self._cursor
        assert cursor is not None
        self._left_out = False
        if placed:
            self._moment += 1
        if cursor.heads is None:
            if not placed:
                cursor.at += 1
            return
        assert self._lane is not None
        key, ids = self._lane
        at = self._at if placed else self._at + 1
        if at < len(ids):
            heapq.heappush(cursor.heads, (ids[at], at, key, ids))

    def widen(self, scope: set[int]) -> bool:
        """Begin anew, with the jobs for these nodes too. False: too much was given already for it to be worth it."""
        stream = self._last_opened
        if self._given != 1 or len(self._popped) != 1 or stream is None:
            return False
        level, item = self._popped.pop()
        level.put_back(item)
        stream.is_over = True
        self._cursor, self._left_out, self._given, self._last_opened = None, False, 0, None
        known, self._tracks = self._tracks, self._state.queue.tracks_near(self._state.fleet, scope)
        self._push_stream(_Stream(stream.track))
        for track in self._tracks:
            if track not in known:
                self._push_stream(_Stream(track))
        return True

    def any_soon(self, most: int, wanted: Callable[[LaneKey], bool]) -> bool:
        """Whether a lane that is wanted is among about the next `most` jobs. The order goes on as if not asked."""
        seen, found = 0, False
        heap = self._heap
        looked_at: list[_Item] = []
        source: _Stream | _Cursor | None = self._cursor
        while not found and seen < most:
            if source is None:
                if not heap:
                    break
                item = heapq.heappop(heap)
                source = item[4]
                if isinstance(source, _Stream):
                    rank, usage, head = item[:3]
                    source = self._open(source)
                    if source is None:
                        continue
                    item = (rank, usage, head, item[3], source)
                looked_at.append(item)
            assert isinstance(source, _Cursor)
            for count, key in self._lanes_left(source):
                seen += count
                if wanted(key):
                    found = True
                    break
            source = None
        for item in looked_at:
            heapq.heappush(heap, item)
        return found

    def close(self) -> None:
        for level, item in self._popped:
            level.put_back(item)
        self._popped.clear()

    def _open(self, stream: _Stream) -> _Cursor | None:
        """The jobs of the first user of a track are a source of their own from now on, and are the next ones in order
        where the source is returned; else it is where it belongs."""
        if stream.is_over:
            return None
        self._last_opened = stream
        level, entry = stream.level, stream.entry
        assert level is not None and entry is not None
        is_as_it_was = stream.moment == self._moment
        if not is_as_it_was:
            top = level.top(self._warp)
            assert top is not None
            entry = top[2]
        self._popped.append((level, level.pop()))
        cursor = _Cursor(-stream.priorities[stream.at], entry)
        head = None if self._may_hold_nothing(entry) else self._head(cursor)
        self._push_stream(stream)
        if head is None:
            return None
        if is_as_it_was and head == entry.ids[0]:
            return cursor
        account = entry.account
        self._count += 1
        key = account.offset + account.held * self._warp
        heapq.heappush(self._heap, (cursor.rank, key, head, self._count, cursor))
        return None

    def _push_stream(self, stream: _Stream) -> None:
        levels, priorities = stream.track.levels, stream.priorities
        while stream.at < len(priorities):
            priority = priorities[stream.at]
            level = levels.get(priority)
            top = level.top(self._warp) if level is not None else None
            if top is not None:
                stream.level, stream.entry, stream.moment = level, top[2], self._moment
                self._count += 1
                heapq.heappush(self._heap, (-priority, top[0], top[1], self._count, stream))
                return
            stream.at += 1

    def _may_hold_nothing(self, entry: Entry) -> bool:
        quotas = self._state.quotas
        if not quotas.rules:
            return False
        least = tuple((name, 1) for name in next(iter(entry.lanes))[0].types)
        return len(least) == 1 and quotas.broken(entry.user_id, "", least) is not None

    def _head(self, cursor: _Cursor) -> int | None:
        """The id of a user's next job. Those that no present nodes could ever hold are left out."""
        if cursor.heads is None:
            ids = cursor.entry.ids
            if cursor.at == len(ids):
                return None
            job_id = ids[cursor.at]
            if self._state.queue.jobs[job_id].shape.ever(self._state.fleet):
                return job_id
            self._by_lanes(cursor, job_id)
        assert cursor.heads is not None
        return cursor.heads[0][0] if cursor.heads else None

    def _leave_out(self, cursor: _Cursor) -> None:
        """All of the lane of the job at hand."""
        entry = cursor.entry
        job = self._state.queue.jobs[entry.ids[cursor.at]]
        self._by_lanes(cursor, job.job.job_id, (job.shape, job.job.max_runtime_seconds, job.job.role_arn))

    def _by_lanes(self, cursor: _Cursor, first: int, left_out: LaneKey | None = None) -> None:
        fleet = self._state.fleet
        heads = []
        for key, lane in cursor.entry.lanes.items():
            if key != left_out and lane[-1] >= first and key[0].ever(fleet):
                at = bisect_left(lane, first)
                heads.append((lane[at], at, key, lane))
        heapq.heapify(heads)
        cursor.heads = heads

    def _lanes_left(self, cursor: _Cursor) -> list[tuple[int, LaneKey]]:
        """How many jobs each lane has yet, lane by lane."""
        if cursor.heads is not None:
            return [(len(lane) - at, key) for _, at, key, lane in cursor.heads]
        ids, fleet = cursor.entry.ids, self._state.fleet
        if cursor.at == len(ids):
            return []
        first = ids[cursor.at]
        return [
            (len(lane) - bisect_left(lane, first), key)
            for key, lane in cursor.entry.lanes.items()
            if lane[-1] >= first and key[0].ever(fleet)
        ]
