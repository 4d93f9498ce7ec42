"""The jobs that wait, in the order of their ids, as a value that is never changed.

Invariant: what a queue shows stays as it is for ever; `with_job` and `without` give another one. A job that comes
behind all others (every new one does) is added in constant time: the new queue shares the storage of this one and sees
one job more of it. All else copies.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

J = TypeVar("J")


class JobQueue(Mapping[int, J], Generic[J]):
    __slots__ = ("_count", "_ids", "_jobs")

    def __init__(self, jobs: Iterable[tuple[int, J]] = ()) -> None:
        ordered = sorted(jobs, key=lambda pair: pair[0])
        self._ids = [job_id for job_id, _ in ordered]
        self._jobs = [job for _, job in ordered]
        self._count = len(ordered)

    def with_job(self, job_id: int, job: J) -> JobQueue[J]:
        """A queue that has this job too; where it is there already, this very queue."""
        at = self.position(job_id)
        if at < self._count and self._ids[at] == job_id:
            return self
        if at == self._count == len(self._ids):
            self._ids.append(job_id)  # behind what this queue sees
            self._jobs.append(job)
            return self._view(self._ids, self._jobs)
        ids, jobs = self._ids[: self._count], self._jobs[: self._count]
        ids.insert(at, job_id)
        jobs.insert(at, job)
        return self._view(ids, jobs)

    def without(self, job_id: int) -> JobQueue[J]:
        """A queue that has not this job; where it is not there, this very queue."""
        at = self.position(job_id)
        if at == self._count or self._ids[at] != job_id:
            return self
        ids, jobs = self._ids[: self._count], self._jobs[: self._count]
        del ids[at], jobs[at]
        return self._view(ids, jobs)

    def position(self, job_id: int) -> int:
        """How many jobs with smaller ids are in the queue."""
        return bisect_left(self._ids, job_id, 0, self._count)

    def behind(self, job_id: int) -> Iterator[J]:
        """The jobs with greater ids, in order."""
        at = bisect_left(self._ids, job_id + 1, 0, self._count)
        return (self._jobs[index] for index in range(at, self._count))

    @property
    def last_id(self) -> int:
        """The greatest id; 0 where the queue is empty."""
        return self._ids[self._count - 1] if self._count else 0

    def __getitem__(self, job_id: int) -> J:
        at = self.position(job_id)
        if at == self._count or self._ids[at] != job_id:
            raise KeyError(job_id)
        return self._jobs[at]

    def __iter__(self) -> Iterator[int]:
        return (self._ids[index] for index in range(self._count))

    def __len__(self) -> int:
        return self._count

    @staticmethod
    def _view(ids: list[int], jobs: list[J]) -> JobQueue[J]:
        queue: JobQueue[J] = JobQueue.__new__(JobQueue)
        queue._ids, queue._jobs, queue._count = ids, jobs, len(ids)
        return queue
