"""The list of jobs: filtered by its address, kept current, and stopping several at once, which asks first."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from sqlalchemy import or_, select
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from trainshed_service.dashboard import words
from trainshed_service.dashboard.filters import SORTS, JobFilter
from trainshed_service.dashboard.live import Live
from trainshed_service.dashboard.pages import Pages
from trainshed_service.dashboard.reading import JobRow, count_states, read_jobs, read_options
from trainshed_service.dashboard.same import ps_of, quoted, search_of
from trainshed_service.dashboard.security import Csrf, read_fields
from trainshed_service.dashboard.visitor import Visitor
from trainshed_service.jobs.states import TERMINAL, JobState
from trainshed_service.rest import calls
from trainshed_service.rest.auth import Caller
from trainshed_service.services import Services
from trainshed_service.store.tables import roles
from trainshed_service.wire.errors import ApiError


class JobsPage:
    def __init__(self, services: Services, pages: Pages, csrf: Csrf) -> None:
        self._services = services
        self._pages = pages
        self._csrf = csrf
        self._live = Live(services, pages)

    async def page(self, request: Request, visitor: Visitor) -> Response:
        """GET /jobs?status=…&user=…&role=…&tag=…&type=…&q=…&since=…&until=…&sort=…&order=…&before=…"""
        wanted = JobFilter.of(request.query_params)

        async def build(current: Visitor) -> dict[str, Any]:
            return await self._context(wanted, current)

        return await self._live.answer(request, visitor, "jobs.html", build)

    async def stop(self, request: Request, visitor: Visitor) -> Response:
        """POST /jobs/stop: which jobs, then (`confirmed`) stops them; tells of each that could not be stopped."""
        fields = await read_fields(request)
        form = dict(fields)
        self._csrf.check(request, visitor.token, form)
        names = list(dict.fromkeys(value for name, value in fields if name == "job"))
        back = form.get("back", "/jobs")
        back = back if back == "/jobs" or back.startswith("/jobs?") else "/jobs"
        caller = Caller(visitor.principal, self._services, b"")
        if not names:
            return RedirectResponse(back, 303)
        if form.get("confirmed") != "yes":
            asked = [await self._asked(caller, name) for name in names]
            return self._pages.render("stop.html", visitor=visitor, jobs=asked, back=back, failed=[])
        failed: list[tuple[str, str]] = []
        for name in names:
            try:
                await calls.call(caller, "StopTrainingJob", {"TrainingJobName": name})
            except ApiError as error:
                failed.append((name, error.message))
        if failed:
            return self._pages.render("stop.html", visitor=visitor, jobs=[], back=back, failed=failed, count=len(names))
        return RedirectResponse(back, 303)

    async def _asked(self, caller: Caller, name: str) -> dict[str, Any]:
        """What the question shows of a job."""
        try:
            job = await calls.call(caller, "DescribeTrainingJob", {"TrainingJobName": name})
        except ApiError as error:
            return {"name": name, "may_stop": False, "why": error.message}
        state = job["TrainingJobStatus"]
        may_stop = state == "InProgress"
        return {"name": name, "may_stop": may_stop, "why": job.get("SecondaryStatus") if may_stop else state}

    async def _context(self, wanted: JobFilter, visitor: Visitor) -> dict[str, Any]:
        caller = Caller(visitor.principal, self._services, b"")
        caller.require("sagemaker:ListTrainingJobs")
        read = self._services.database.read
        found = await read(lambda session: read_jobs(session, wanted, caller.reach))
        counts = await read(lambda session: count_states(session, caller.reach))
        options = await read(lambda session: read_options(session, caller.reach))
        named = select(roles.c.arn).where(or_(roles.c.name.in_(wanted.roles), roles.c.arn.in_(wanted.roles)))
        arns = await read(lambda session: list(session.scalars(named))) if wanted.roles else []
        return {
            "filter": wanted,
            "rows": [(row, words.STATES[row.state], self._reason(row), _may_stop(row.state)) for row in found.rows],
            "older": wanted.address(found.older) if found.older else None,
            "newest": wanted.address() if wanted.before else None,
            "states": [(word, sum(counts.get(state, 0) for state in words.FILTERS[word])) for word in words.FILTERS],
            "total": sum(count for state, count in counts.items() if state is not JobState.DELETING),
            "chips": _chips(wanted),
            "lists": [
                (title, name, sorted({*offered, *chosen}), chosen)
                for title, name, offered, chosen in (
                    ("User", "user", options.users, wanted.users),
                    ("Role", "role", options.roles, wanted.roles),
                    ("Instance type", "type", options.types, wanted.types),
                )
                if offered or chosen
            ],
            "sorts": [(name, label, wanted.sorted_by(name).address()) for name, label in SORTS.items()],
            "here_address": wanted.address(wanted.before),
            "ps": ps_of(wanted),
            "search": quoted(search_of(wanted, arns)),
        }

    def _reason(self, row: JobRow) -> str:
        waiting = self._services.nodes.scheduler.explain(row.id) if row.state is JobState.QUEUED else None
        return words.reason(row.state, waiting=waiting, failure=row.failure_reason, stop_reason=row.stop_reason)


def _may_stop(state: JobState) -> bool:
    return state not in TERMINAL and state not in (JobState.STOPPING, JobState.DELETING)


def _chips(wanted: JobFilter) -> list[tuple[str, str]]:
    """What is set beside the status, each with the address without it."""
    pairs = wanted.pairs()
    return [
        (
            f"{name} {value}",
            "/jobs" + (f"?{urlencode(rest)}" if (rest := [p for p in pairs if p != (name, value)]) else ""),
        )
        for name, value in pairs
        if name not in ("status", "q", "sort", "order")
    ]
