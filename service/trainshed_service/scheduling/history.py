"""How long jobs took that were like one that waits: same user, same instances, same code. Only for projections."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainshed_service.jobs.spec import gang, submit_directory
from trainshed_service.jobs.states import JobState
from trainshed_service.scheduling.events import needs_of
from trainshed_service.store.tables import jobs

MOST_JOBS = 2000
MOST_ALIKE = 7
Likeness = tuple[Any, ...]


def likeness(user_id: int | None, request: dict[str, Any]) -> Likeness:
    parameters = request.get("HyperParameters") or {}
    algorithm = request.get("AlgorithmSpecification") or {}
    code = submit_directory(request)
    return (
        user_id,
        needs_of(gang(request)),
        algorithm.get("TrainingImage") or algorithm.get("AlgorithmName"),
        parameters.get("sagemaker_program"),
        # An SDK uploads the same code under a new prefix for every job.
        code.rpartition("/")[2] if code else None,
    )


class History:
    """Medians of the last jobs of each kind, in memory; `load` reads them anew."""

    def __init__(self) -> None:
        self._medians: dict[Likeness, float] = {}

    def expect(self, user_id: int | None, request: dict[str, Any]) -> float | None:
        """Seconds that a job like this holds its instances; None: nobody knows."""
        return self._medians.get(likeness(user_id, request)) if self._medians else None

    def load(self, session: Session) -> None:
        seconds: dict[Likeness, list[float]] = defaultdict(list)
        for row in session.execute(
            select(jobs.c.user_id, jobs.c.request, jobs.c.training_started_at, jobs.c.training_ended_at)
            .where(jobs.c.state == JobState.COMPLETED.value, jobs.c.training_ended_at.is_not(None))
            .order_by(jobs.c.id.desc())
            .limit(MOST_JOBS)
        ):
            alike = seconds[likeness(row.user_id, row.request)]
            if len(alike) < MOST_ALIKE and row.training_started_at is not None:
                alike.append(row.training_ended_at - row.training_started_at)
        self._medians = {key: float(median(values)) for key, values in seconds.items() if values}
