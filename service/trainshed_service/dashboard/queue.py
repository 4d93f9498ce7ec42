"""The queue: what runs until when, and what waits, in order, with why and a projected start.

Invariant: a page costs the same however long the queue is: reasons are made for the jobs of the page alone.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session
from starlette.requests import Request
from starlette.responses import Response

from trainshed_service.dashboard import words
from trainshed_service.dashboard.live import Live
from trainshed_service.dashboard.visitor import Visitor
from trainshed_service.jobs.reach import Reach
from trainshed_service.jobs.states import ACTIVE, JobState
from trainshed_service.rest.auth import Caller
from trainshed_service.services import Services
from trainshed_service.store.tables import jobs, users

PAGE = 50
MOST_RUNNING = 200
_MOST_PAGES = 10_000
_RUNNING = [state.value for state in ACTIVE if state is not JobState.QUEUED]


class QueuePage:
    def __init__(self, services: Services, live: Live) -> None:
        self._services = services
        self._live = live

    async def page(self, request: Request, visitor: Visitor) -> Response:
        """GET /queue?page=N, from 1."""
        text = request.query_params.get("page", "1")
        number = int(text) if text.isascii() and text.isdigit() and len(text) <= 5 else 1
        number = min(max(number, 1), _MOST_PAGES)

        async def build(visitor: Visitor) -> dict[str, Any]:
            caller = Caller(visitor.principal, self._services, b"")
            caller.require("sagemaker:ListTrainingJobs")
            scheduler, reach = self._services.nodes.scheduler, caller.reach
            total = scheduler.waiting(reach.owner)
            last = max(1, -(-total // PAGE))
            shown = min(number, last)
            waiting = scheduler.queue(PAGE, reach.owner, skip=(shown - 1) * PAGE)
            names = [row["name"] for row in waiting]
            database = self._services.database
            owners = await database.read(lambda session: _owners(session, names))
            rows, count = await database.read(lambda session: _read_running(session, reach))
            running = [{**row, **scheduler.ends(row["id"])} for row in rows]
            running.sort(key=lambda row: (row["expectedEnd"] or row["latestEnd"] or float("inf"), row["id"]))
            return {
                "waiting": [{**row, "user": owners.get(row["name"], "")} for row in waiting],
                "total": total,
                "number": shown,
                "last": last,
                "running": running,
                "running_count": count,
            }

        return await self._live.answer(request, visitor, "queue.html", build)


def _instances(resources: dict[str, Any] | None) -> str:
    """As the reasons of those that wait say it: 4 × ml.c5.xlarge."""
    groups = (resources or {}).get("InstanceGroups") or [resources or {}]
    return " and ".join(f"{each.get('InstanceCount', 1)} × {each.get('InstanceType', '–')}" for each in groups)


def _owners(session: Session, names: list[str]) -> dict[str, str]:
    """Job → the name of its user."""
    query = select(jobs.c.name, users.c.name).join(users, users.c.id == jobs.c.user_id).where(jobs.c.name.in_(names))
    return dict(session.execute(query).tuples().all())


def _read_running(session: Session, reach: Reach) -> tuple[list[dict[str, Any]], int]:
    """The first jobs that hold instances, the oldest first, and how many there are."""
    where = [jobs.c.state.in_(_RUNNING), *reach.conditions()]
    rows = session.execute(
        select(
            jobs.c.id,
            jobs.c.name,
            jobs.c.state,
            jobs.c.request["ResourceConfig"].as_json().label("resources"),
            jobs.c.training_started_at,
            users.c.name.label("user"),
        )
        .outerjoin(users, users.c.id == jobs.c.user_id)
        .where(*where)
        .order_by(jobs.c.id)
        .limit(MOST_RUNNING)
    ).all()
    count = len(rows)
    if count == MOST_RUNNING:
        count = session.scalar(select(func.count()).select_from(jobs).where(*where)) or count
    return [
        {
            "id": row.id,
            "name": row.name,
            "state": words.STATES[JobState(row.state)],
            "types": _instances(row.resources),
            "started": row.training_started_at,
            "user": row.user or "",
        }
        for row in rows
    ], count
