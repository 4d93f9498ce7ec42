"""One job: what happens to it and why, its log, and stopping it."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from trainshed_service.dashboard import words
from trainshed_service.dashboard.charts import Group, group
from trainshed_service.dashboard.failure import outcome, report, telling_lines
from trainshed_service.dashboard.files import places
from trainshed_service.dashboard.live import Live
from trainshed_service.dashboard.pages import Pages
from trainshed_service.dashboard.phases import natural, phase_rows
from trainshed_service.dashboard.reading import types_of
from trainshed_service.dashboard.security import Csrf, read_form
from trainshed_service.dashboard.visitor import Visitor
from trainshed_service.jobs.states import JobState
from trainshed_service.pools.explain import explain
from trainshed_service.rest import calls, follow
from trainshed_service.rest.auth import Caller
from trainshed_service.services import Services

MAX_CHARTS = 24
MAX_LINES = 12
MAX_EVENTS = 200
MAX_POOLS = 5
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
        self._live = Live(services, pages)

    async def page(self, request: Request, visitor: Visitor) -> Response:
        """GET /jobs/<name>."""

        async def build(current: Visitor) -> dict[str, Any]:
            return await self._context(current, request.path_params["name"])

        return await self._live.answer(request, visitor, "job.html", build)

    async def log(self, request: Request, visitor: Visitor) -> Response:
        """GET /jobs/<name>/log: the log alone, as high as the window."""

        async def build(current: Visitor) -> dict[str, Any]:
            return await self._head(current, request.path_params["name"])

        return await self._live.answer(request, visitor, "log.html", build)

    async def _context(self, visitor: Visitor, name: str) -> dict[str, Any]:
        context = await self._head(visitor, name)
        services, job, more = self._services, context["job"], context["more"]
        now = services.clock.now()
        if more["Terminal"]:
            now = job["LastModifiedTime"]
        told = await telling_lines(services, more["Attempts"]) if context["is_failed"] else []
        return {
            **context,
            "phases": phase_rows(more["Phases"], now, is_over=more["Terminal"]),
            "charts": await self._charts(name),
            "events": await services.events.read(0, f"job/{name}", MAX_EVENTS),
            "contact": await follow.contact(services, name) if not more["Terminal"] else [],
            "spec": [
                (member, _pretty(job[member])) for member in _SPEC if job.get(member) not in (None, False, {}, [])
            ],
            "told": told,
            "report": report(job, more, context["reason"], context["types"], told, context["url"]),
            "match": await self._match(visitor, job) if context["is_waiting"] else None,
            "outcome": outcome,
            "places": places(job),
            "tags": await services.jobs.list_tags(job["TrainingJobArn"]),
            "may_download": job["TrainingJobStatus"] in ("Completed", "Stopped"),
            "is_single_file": job["ModelArtifacts"]["S3ModelArtifacts"].endswith(".tar.gz"),
        }

    async def _match(self, visitor: Visitor, job: dict[str, Any]) -> dict[str, Any]:
        """The warm pools beside the job's request, the nearest first: why none of them is taken."""
        reach = self._caller(visitor).reach
        found = await self._services.database.read(lambda session: explain(session, job, reach))
        return {**found, "pools": found["pools"][:MAX_POOLS]}

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
            "is_over": more["Terminal"],
            "pool": job.get("WarmPoolStatus"),
        }

    async def _charts(self, name: str) -> list[Group]:
        """The job's own metrics first, then those of its hosts, each metric once with a line per host."""
        metrics = self._services.metrics
        keys = await metrics.list(job_name=name, limit=MAX_CHARTS * MAX_LINES)
        keys = sorted(keys, key=lambda key: (key.host is not None, key.name, natural(key.host or "")))
        together: dict[tuple[bool, str], list[str | None]] = {}
        for key in keys:
            together.setdefault((key.host is not None, key.name), []).append(key.host)
        drawn = []
        for (_, title), hosts in list(together.items())[:MAX_CHARTS]:
            series = []
            for host in hosts[:MAX_LINES]:
                points = await metrics.points(name, title, host=host, limit=100_000)
                if points:
                    series.append((host or "", points))
            if series:
                drawn.append(group(title, series))
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
