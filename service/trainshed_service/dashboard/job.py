"""One job: what happens to it and why, its log, and stopping it."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from trainshed_service.dashboard import words
from trainshed_service.dashboard.charts import Chart, chart
from trainshed_service.dashboard.pages import Pages
from trainshed_service.dashboard.phases import phase_rows
from trainshed_service.dashboard.reading import types_of
from trainshed_service.dashboard.security import Csrf, read_form
from trainshed_service.dashboard.visitor import Visitor
from trainshed_service.jobs.states import JobState
from trainshed_service.rest import calls, follow
from trainshed_service.rest.auth import Caller
from trainshed_service.services import Services

MAX_CHARTS = 24
MAX_EVENTS = 200
_SPEC = (
    "AlgorithmSpecification",
    "HyperParameters",
    "Environment",
    "InputDataConfig",
    "OutputDataConfig",
    "CheckpointConfig",
    "ResourceConfig",
    "StoppingCondition",
    "RetryStrategy",
    "RoleArn",
    "EnableManagedSpotTraining",
    "EnableNetworkIsolation",
)


class JobPage:
    def __init__(self, services: Services, pages: Pages, csrf: Csrf) -> None:
        self._services = services
        self._pages = pages
        self._csrf = csrf

    async def page(self, request: Request, visitor: Visitor) -> Response:
        """GET /jobs/<name>."""
        name = request.path_params["name"]
        context = await self._head(visitor, name)
        services, job, more = self._services, context["job"], context["more"]
        now = services.clock.now()
        if more["Terminal"]:
            now = job["LastModifiedTime"]
        return self._pages.live(
            request,
            "job.html",
            visitor=visitor,
            **context,
            phases=phase_rows(more["Phases"], now, is_over=more["Terminal"]),
            charts=await self._charts(name),
            events=await services.events.read(0, f"job/{name}", MAX_EVENTS),
            contact=await follow.contact(services, name) if not more["Terminal"] else [],
            spec=[(member, _pretty(job[member])) for member in _SPEC if job.get(member) not in (None, False, {}, [])],
        )

    async def log(self, request: Request, visitor: Visitor) -> Response:
        """GET /jobs/<name>/log: the log alone, as high as the window."""
        context = await self._head(visitor, request.path_params["name"])
        return self._pages.live(request, "log.html", visitor=visitor, **context)

    async def stop(self, request: Request, visitor: Visitor) -> Response:
        """POST /jobs/<name>/stop."""
        name = request.path_params["name"]
        self._csrf.check(request, visitor.token, await read_form(request))
        await calls.call(self._caller(visitor), "StopTrainingJob", {"TrainingJobName": name})
        return RedirectResponse(f"/jobs/{name}", 303)

    async def _head(self, visitor: Visitor, name: str) -> dict[str, Any]:
        """What both pages show. ApiError 404, 403."""
        job = await calls.call(self._caller(visitor), "DescribeTrainingJob", {"TrainingJobName": name})
        more = await self._services.jobs.describe_extended(name, self._caller(visitor).reach)
        state = JobState(more["State"])
        settings = self._services.settings
        return {
            "job": job,
            "more": more,
            "state": words.STATES[state],
            "reason": words.reason(
                state,
                waiting=more.get("WaitingReason"),
                failure=job.get("FailureReason"),
                stop_reason=more["StopReason"],
            ),
            "types": types_of(job["ResourceConfig"]),
            "is_waiting": state is JobState.QUEUED,
            "is_failed": state is JobState.FAILED,
            "may_stop": not more["Terminal"] and state not in (JobState.STOPPING, JobState.DELETING),
            "url": settings.resolved_public_url,
        }

    async def _charts(self, name: str) -> list[Chart]:
        """The job's own metrics first, then those of its hosts."""
        metrics = self._services.metrics
        keys = await metrics.list(job_name=name, limit=MAX_CHARTS * 2)
        keys = sorted(keys, key=lambda key: (key.host is not None, key.name, key.host or ""))[:MAX_CHARTS]
        drawn = []
        for key in keys:
            points = await metrics.points(name, key.name, host=key.host, limit=100_000)
            if points:
                drawn.append(chart(f"{key.name} · {key.host}" if key.host else key.name, points))
        return drawn

    def _caller(self, visitor: Visitor) -> Caller:
        return Caller(visitor.principal, self._services, b"")


def _pretty(value: Any) -> str:
    """Plain maps (hyperparameters, environment) as lines; what is nested as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and not any(isinstance(each, (dict, list)) for each in value.values()):
        return "\n".join(f"{key}: {each}" for key, each in value.items())
    return json.dumps(value, indent=2, ensure_ascii=False)
