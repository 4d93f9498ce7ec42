"""The jobs that wait, indexed so that the next one in order is found without looking at the others.

Order: priority (higher first), then the user's usage (less first), then age (the lower id). A *track* holds the jobs
that need the same instance types; in it, per priority, users stand in a heap by their usage, and each user's jobs are
in *lanes*: equal needs, limit and role.

Invariants: keys in a heap are lower bounds (usage only grows), so bringing the top up to date until it stays on top
gives the true order; adding and removing a job costs the logarithm of their number (plus a shift in a list of ids).
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterator

from trainshed_service.scheduling.events import JobQueued, Needs
from trainshed_service.scheduling.fleet import Fleet
from trainshed_service.scheduling.matching import Allocation, fit
from trainshed_service.scheduling.shares import Account, Shares

OrderKey = tuple[int, float, int]
"""(-priority, usage, job id): the lower comes first."""


class Shape:
    """Needs that jobs have in common, with what is computed of the nodes for all of them at once."""

    __slots__ = ("_alone", "_classes", "_components", "_ever", "_version", "jobs", "needs", "sole", "total", "types")

    def __init__(self, needs: Needs) -> None:
        self.needs = needs
        self.total = sum(count for _, count in needs)
        self.types = tuple(sorted({name for name, _ in needs}))
        self.jobs = 0
        self._version = -1
        self._ever = False
        self._classes: frozenset[int] = frozenset()
        self._components: frozenset[int] = frozenset()
        self._alone: Allocation = ()
        self.sole = -1
        """The class of nodes, where it needs one type that only one class can be, as of the last question; else -1."""

    def ever(self, fleet: Fleet) -> bool:
        """Whether all present nodes together could hold it."""
        if self._version != fleet.version:
            self._look(fleet)
        return self._ever

    def classes(self, fleet: Fleet) -> frozenset[int]:
        """The classes of nodes that it could use."""
        if self._version != fleet.version:
            self._look(fleet)
        return self._classes

    def components(self, fleet: Fleet) -> frozenset[int]:
        if self._version != fleet.version:
            self._look(fleet)
        return self._components

    def fits(self, fleet: Fleet) -> Allocation | None:
        """Where the nodes that are free now can hold it, looking at nothing else."""
        if self._version != fleet.version:
            self._look(fleet)
        if self.sole >= 0:
            return self._alone if fleet.free[self.sole] >= self.total else None
        return fit(self.needs, fleet.free, fleet.accepting)

    def alone(self, free: int) -> Allocation | None:
        """`fits`, where there is a `sole` class and so many of its nodes are free."""
        return self._alone if free >= self.total else None

    def _look(self, fleet: Fleet) -> None:
        self._version = fleet.version
        self._ever = fit(self.needs, fleet.present(), fleet.accepting) is not None
        self._classes = frozenset(cls for name in self.types for cls in fleet.accepting(name))
        self._components = fleet.components(self.types)
        self.sole = -1
        if len(self.needs) == 1 and len(self._classes) == 1:
            (self.sole,) = self._classes
            self._alone = ((self.types[0], self.sole, self.total),)


LaneKey = tuple[Shape, float, str]
"""Needs, maximum runtime, role."""


class Entry:
    """The jobs of one user in one track at one priority."""

    __slots__ = ("account", "ids", "lanes", "serial", "user_id")

    def __init__(self, user_id: int | None, account: Account) -> None:
        self.user_id = user_id
        self.account = account
        self.ids: list[int] = []
        self.lanes: dict[LaneKey, list[int]] = {}
        self.serial = -1


LevelItem = tuple[float, int, int, Entry]
"""A lower bound of a user's usage, the oldest job, the serial of the entry, the entry."""


class Level:
    """One priority of a track: its users in the order of their usage."""

    __slots__ = ("_heap", "_serial", "entries")

    def __init__(self) -> None:
        self.entries: dict[int | None, Entry] = {}
        self._heap: list[LevelItem] = []
        self._serial = 0

    def push(self, entry: Entry, warp: float) -> None:
        """The entry's place in the order is this one from now on."""
        self._serial += 1
        entry.serial = self._serial
        heapq.heappush(self._heap, (entry.account.key(warp), entry.ids[0], self._serial, entry))

    def top(self, warp: float) -> tuple[float, int, Entry] | None:
        """The first user's usage and oldest job."""
        heap = self._heap
        while heap:
            stored, head, serial, entry = heap[0]
            ids, account = entry.ids, entry.account
            if serial != entry.serial or not ids:
                heapq.heappop(heap)
                continue
            key = account.offset + account.held * warp
            if key > stored or ids[0] != head:
                size = len(heap)
                if key > stored and (size < 2 or key < heap[1][0]) and (size < 3 or key < heap[2][0]):
                    return key, ids[0], entry  # others only have more by now: it stays the first
                heapq.heapreplace(heap, (key if key > stored else stored, ids[0], serial, entry))
                continue
            return key, head, entry
        return None

    def pop(self) -> LevelItem:
        """Take the top out, to be put back."""
        return heapq.heappop(self._heap)

    def put_back(self, item: LevelItem) -> None:
        """What was popped stands in the order again, where it still has jobs."""
        entry = item[3]
        if entry.ids and self.entries.get(entry.user_id) is entry:
            heapq.heappush(self._heap, item)

    def rescale(self, factor: float) -> None:
        self._heap = [(key * factor, head, serial, entry) for key, head, serial, entry in self._heap]
        heapq.heapify(self._heap)


class Track:
    __slots__ = ("_components", "_version", "levels", "priorities", "types")

    def __init__(self, types: tuple[str, ...]) -> None:
        self.types = types
        self.levels: dict[int, Level] = {}
        self.priorities: list[int] = []
        """Of the levels, the highest first."""
        self._version = -1
        self._components: frozenset[int] = frozenset()

    def components(self, fleet: Fleet) -> frozenset[int]:
        """The components of the nodes that its jobs could use."""
        if self._version != fleet.version:
            self._version = fleet.version
            self._components = fleet.components(self.types)
        return self._components


class Waiting:
    """A job in the queue."""

    __slots__ = ("job", "shape", "told", "told_at")

    def __init__(self, job: JobQueued, shape: Shape) -> None:
        self.job = job
        self.shape = shape
        self.told: str | None = None
        self.told_at = 0.0


class Queue:
    def __init__(self) -> None:
        self.jobs: dict[int, Waiting] = {}
        self.tracks: dict[tuple[str, ...], Track] = {}
        self.by_pool_key: dict[str, dict[tuple[int, int | None], list[int]]] = {}
        """Pool key → (priority, user) → ids."""
        self._near: dict[frozenset[int], list[Track]] = {}
        self._near_version = -1
        self._shapes: dict[Needs, Shape] = {}
        self._ranks: dict[int, dict[int | None, list[int]]] = {}
        """Priority → user → ids."""
        self._counts: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.jobs)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self.jobs

    def shape(self, needs: Needs) -> Shape:
        found = self._shapes.get(needs)
        return found if found is not None else Shape(needs)

    def add(self, job: JobQueued, shares: Shares, warp: float) -> bool:
        """Put a job in; whether nothing like it (same user, priority, needs, limit and role) waits before it."""
        shape = self._shapes.setdefault(job.needs, self.shape(job.needs))
        shape.jobs += 1
        self.jobs[job.job_id] = Waiting(job, shape)
        track = self.tracks.get(shape.types)
        if track is None:
            track = self.tracks[shape.types] = Track(shape.types)
            self._near.clear()
        level = track.levels.get(job.priority)
        if level is None:
            level = track.levels[job.priority] = Level()
            track.priorities = sorted(track.levels, reverse=True)
        entry = level.entries.get(job.user_id)
        if entry is None:
            entry = level.entries[job.user_id] = Entry(job.user_id, shares.account(job.user_id))
        lane = entry.lanes.setdefault((shape, job.max_runtime_seconds, job.role_arn), [])
        _insert(lane, job.job_id)
        _insert(entry.ids, job.job_id)
        if entry.ids[0] == job.job_id:
            level.push(entry, warp)
        _insert(self._ranks.setdefault(job.priority, {}).setdefault(job.user_id, []), job.job_id)
        self._counts[job.priority] = self._counts.get(job.priority, 0) + 1
        if job.pool_key is not None:
            groups = self.by_pool_key.setdefault(job.pool_key, {})
            _insert(groups.setdefault((job.priority, job.user_id), []), job.job_id)
        return lane[0] == job.job_id

    def remove(self, job_id: int) -> Waiting:
        waiting = self.jobs.pop(job_id)
        job, shape = waiting.job, waiting.shape
        shape.jobs -= 1
        if not shape.jobs:
            del self._shapes[shape.needs]
        track = self.tracks[shape.types]
        level = track.levels[job.priority]
        entry = level.entries[job.user_id]
        lane_key = (shape, job.max_runtime_seconds, job.role_arn)
        if _remove(entry.lanes[lane_key], job_id):
            del entry.lanes[lane_key]
        if _remove(entry.ids, job_id):
            del level.entries[job.user_id]
            if not level.entries:
                del track.levels[job.priority]
                track.priorities = sorted(track.levels, reverse=True)
                if not track.levels:
                    del self.tracks[shape.types]
                    self._near.clear()
        users = self._ranks[job.priority]
        if _remove(users[job.user_id], job_id):
            del users[job.user_id]
        self._counts[job.priority] -= 1
        if not self._counts[job.priority]:
            del self._counts[job.priority], self._ranks[job.priority]
        if job.pool_key is not None:
            groups = self.by_pool_key[job.pool_key]
            if _remove(groups[job.priority, job.user_id], job_id):
                del groups[job.priority, job.user_id]
                if not groups:
                    del self.by_pool_key[job.pool_key]
        return waiting

    def tracks_near(self, fleet: Fleet, scope: set[int]) -> list[Track]:
        """Those with jobs that could use nodes of these components."""
        if self._near_version != fleet.version:
            self._near_version = fleet.version
            self._near.clear()
        key = frozenset(scope)
        found = self._near.get(key)
        if found is None:
            found = self._near[key] = [
                track for track in self.tracks.values() if not track.components(fleet).isdisjoint(key)
            ]
        return found

    def order(self, job: JobQueued, shares: Shares, warp: float) -> OrderKey:
        return (-job.priority, shares.key(job.user_id, warp), job.job_id)

    def ahead(self, job_id: int, shares: Shares, warp: float) -> int:
        """How many jobs come before this one."""
        job = self.jobs[job_id].job
        own = shares.key(job.user_id, warp)
        ahead = sum(count for priority, count in self._counts.items() if priority > job.priority)
        for user, ids in self._ranks[job.priority].items():
            key = shares.key(user, warp)
            if key < own:
                ahead += len(ids)
            elif key == own:
                ahead += bisect_left(ids, job_id)
        return ahead

    def for_pool(self, pool_key: str, shares: Shares, warp: float) -> list[int]:
        """The first waiting job of each user and priority that a pool with this key can run, in order."""
        groups = self.by_pool_key.get(pool_key, {})
        first = [(-priority, shares.key(user, warp), ids[0]) for (priority, user), ids in groups.items()]
        first.sort()
        return [job_id for _, _, job_id in first]

    def first_ids(self, most: int, user_id: int | None = None) -> list[int]:
        """The first `most` jobs of each priority and user (where more wait, of the highest priorities only)."""
        found: list[int] = []
        for priority in sorted(self._ranks, reverse=True):
            for user, ids in self._ranks[priority].items():
                if user_id is None or user == user_id:
                    found += ids[:most]
            if len(found) >= most:
                break
        return found

    def count(self, user_id: int | None = None) -> int:
        """How many jobs wait; of one user where given."""
        if user_id is None:
            return len(self.jobs)
        return sum(len(users.get(user_id, ())) for users in self._ranks.values())

    def levels(self) -> Iterator[Level]:
        for track in self.tracks.values():
            yield from track.levels.values()


def _insert(ids: list[int], job_id: int) -> None:
    if not ids or ids[-1] < job_id:
        ids.append(job_id)
    else:
        ids.insert(bisect_left(ids, job_id), job_id)


def _remove(ids: list[int], job_id: int) -> bool:
    """True: none is left."""
    del ids[bisect_left(ids, job_id)]
    return not ids
