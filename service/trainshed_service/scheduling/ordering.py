"""The waiting jobs of some components one by one, in the queue's order, without looking at more of them than are taken.

Invariant: the queue's heaps are as before when it is closed, whatever was placed meanwhile.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from trainshed_service.scheduling.queue import Entry, LaneKey, Level, Track, Waiting
from trainshed_service.scheduling.state import State


class _Stream:
    """The users of one track in order, priority after priority."""

    __slots__ = ("at", "priorities", "track")

    def __init__(self, track: Track) -> None:
        self.track = track
        self.priorities = track.priorities
        self.at = 0


class _Cursor:
    """A user's jobs in one track and priority, in the order of their age: the next of each lane in a heap."""

    __slots__ = ("heads", "priority", "user_id")

    def __init__(self, priority: int, user_id: int | None) -> None:
        self.priority = priority
        self.user_id = user_id
        self.heads: list[tuple[int, int, LaneKey, list[int]]] = []


class Order:
    def __init__(self, state: State, scope: set[int]) -> None:
        self._state = state
        self._warp = state.warp()
        self._heap: list[tuple[int, float, int, int, _Stream | _Cursor]] = []
        self._count = 0
        self._popped: list[tuple[Level, Entry]] = []
        self._cursor: _Cursor | None = None
        self._at = 0
        self._lane: tuple[LaneKey, list[int]] | None = None
        for track in state.queue.tracks.values():
            if not track.components(state.fleet).isdisjoint(scope):
                self._push_stream(_Stream(track))

    def next(self) -> Waiting | None:
        """The next job; the rest of the last one's lane comes only after `go_on`."""
        heap, shares = self._heap, self._state.shares
        cursor = self._cursor
        if cursor is not None and cursor.heads:
            self._count += 1
            key = shares.key(cursor.user_id, self._warp)
            item = (-cursor.priority, key, cursor.heads[0][0], self._count, cursor)
            source = heapq.heappushpop(heap, item)[4]
        elif heap:
            source = heapq.heappop(heap)[4]
        else:
            self._cursor = None
            return None
        while isinstance(source, _Stream):
            self._open(source)
            if not heap:
                self._cursor = None
                return None
            source = heapq.heappop(heap)[4]
        self._cursor = source
        _, self._at, key_of_lane, lane = heapq.heappop(source.heads)
        self._lane = (key_of_lane, lane)
        return self._state.queue.jobs[lane[self._at]]

    def go_on(self, *, placed: bool) -> None:
        """Look at the rest of the lane too. A job that was `placed` is not in it any more."""
        assert self._lane is not None and self._cursor is not None
        key, ids = self._lane
        at = self._at if placed else self._at + 1
        if at < len(ids):
            heapq.heappush(self._cursor.heads, (ids[at], at, key, ids))

    def any_soon(self, most: int, wanted: Callable[[LaneKey], bool]) -> bool:
        """Whether a lane that is wanted is among about the next `most` jobs. The order goes on as if not asked."""
        seen, found = 0, False
        looked_at: list[tuple[int, float, int, int, _Stream | _Cursor]] = []
        source: _Stream | _Cursor | None = self._cursor
        while not found and seen < most:
            if source is None:
                if not self._heap:
                    break
                item = heapq.heappop(self._heap)
                source = item[4]
                if isinstance(source, _Stream):
                    self._open(source)
                    source = None
                    continue
                looked_at.append(item)
            assert isinstance(source, _Cursor)
            for _, at, key, lane in source.heads:
                seen += len(lane) - at
                if wanted(key):
                    found = True
                    break
            source = None
        for item in looked_at:
            heapq.heappush(self._heap, item)
        return found

    def close(self) -> None:
        for level, entry in self._popped:
            if entry.ids and level.entries.get(entry.user_id) is entry:
                level.push(entry, self._warp)
        self._popped.clear()

    def _open(self, stream: _Stream) -> None:
        """The jobs of the first user of a track are a source of their own from now on."""
        usage, entry = self._take(stream)
        cursor = _Cursor(stream.priorities[stream.at], entry.user_id)
        self._fill(cursor, entry)
        if cursor.heads:
            self._count += 1
            heapq.heappush(self._heap, (-cursor.priority, usage, cursor.heads[0][0], self._count, cursor))
        self._push_stream(stream)

    def _take(self, stream: _Stream) -> tuple[float, Entry]:
        """The first user of a track, taken out of it until the order is closed."""
        level = stream.track.levels[stream.priorities[stream.at]]
        top = level.top(self._warp)
        assert top is not None
        level.pop()
        self._popped.append((level, top[2]))
        return top[0], top[2]

    def _push_stream(self, stream: _Stream) -> None:
        while stream.at < len(stream.priorities):
            priority = stream.priorities[stream.at]
            level = stream.track.levels.get(priority)
            top = level.top(self._warp) if level is not None else None
            if top is not None:
                self._count += 1
                heapq.heappush(self._heap, (-priority, top[0], top[1], self._count, stream))
                return
            stream.at += 1

    def _fill(self, cursor: _Cursor, entry: Entry) -> None:
        """Jobs that no present nodes could ever hold are left out, and all of a user who may hold nothing more."""
        fleet, quotas = self._state.fleet, self._state.quotas
        if quotas.rules:
            least = tuple((name, 1) for name in next(iter(entry.lanes))[0].types)
            if len(least) == 1 and quotas.broken(entry.user_id, "", least):
                return
        cursor.heads = [(lane[0], 0, key, lane) for key, lane in entry.lanes.items() if key[0].ever(fleet)]
        heapq.heapify(cursor.heads)
