"""A new job: as a form and as JSON, checked while it is written, by the very checks of a real create.

Invariants: what is sent is the text of the JSON, byte for byte; the form only writes into it, so without scripts the
page works by its text alone; a refused request comes back with its text and the reason, nothing typed is lost.
"""

from __future__ import annotations

import json
import re
from typing import Any

from sqlalchemy import select
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from trainshed_service.dashboard.pages import Pages
from trainshed_service.dashboard.reading import read_options
from trainshed_service.dashboard.security import Csrf, read_form
from trainshed_service.dashboard.visitor import Visitor
from trainshed_service.jobs.tagging import get_tags
from trainshed_service.rest import calls
from trainshed_service.rest.auth import Caller
from trainshed_service.rest.dry_run import dry_run
from trainshed_service.services import Services
from trainshed_service.store.tables import jobs, roles
from trainshed_service.wire.errors import ApiError, not_found

MAX_BYTES = 2 * 1024 * 1024
_COMMON_TYPES = ("ml.c5.xlarge", "ml.c5.4xlarge", "ml.g5.xlarge", "ml.g5.12xlarge", "ml.p4d.24xlarge", "ml.p5.48xlarge")
_NUMBERED = re.compile(r"^(.*?)-(\d{1,4})$")
_MAX_NAME = 63


class NewJobPage:
    def __init__(self, services: Services, pages: Pages, csrf: Csrf) -> None:
        self._services = services
        self._pages = pages
        self._csrf = csrf

    async def page(self, request: Request, visitor: Visitor) -> Response:
        """GET /new-job, or /new-job?from=<job>: its request, to be changed."""
        source = request.query_params.get("from", "")[:_MAX_NAME]
        caller = Caller(visitor.principal, self._services, b"")
        spec = await self._cloned(caller, source) if source else await self._empty(visitor)
        return await self._shown(visitor, json.dumps(spec, indent=2, ensure_ascii=False), source=source)

    async def submit(self, request: Request, visitor: Visitor) -> Response:
        """POST /new-job."""
        form = await read_form(request, MAX_BYTES)
        self._csrf.check(request, visitor.token, form)
        text = form.get("spec", "")
        caller = Caller(visitor.principal, self._services, text.encode("utf-8", "replace"))
        try:
            body = calls.body_of(caller)
            await calls.call(caller, "CreateTrainingJob", body)
        except ApiError as error:
            if error.status >= 500:
                raise
            return await self._shown(visitor, text, error=error.message, status=error.status)
        return RedirectResponse(f"/jobs/{body['TrainingJobName']}", 303)

    async def check(self, request: Request, visitor: Visitor) -> Response:
        """POST /new-job/check: what `POST /v1/training-jobs?dryRun=true` says of the text."""
        form = await read_form(request, MAX_BYTES)
        self._csrf.check(request, visitor.token, form)
        caller = Caller(visitor.principal, self._services, form.get("spec", "").encode("utf-8", "replace"))
        try:
            answer = await dry_run(caller, calls.body_of(caller))
        except ApiError as error:
            if error.status >= 500:
                raise
            answer = {"valid": False, "refusals": [{"code": error.code, "message": error.message}]}
        return JSONResponse(answer, headers={"cache-control": "no-store"})

    async def _shown(
        self, visitor: Visitor, text: str, *, source: str = "", error: str = "", status: int = 200
    ) -> Response:
        caller = Caller(visitor.principal, self._services, b"")
        options = await self._services.database.read(lambda session: read_options(session, caller.reach))
        return self._pages.render(
            "new_job.html",
            status=status,
            visitor=visitor,
            text=text,
            source=source,
            error=error,
            roles=await self._roles(visitor),
            types=sorted({*_COMMON_TYPES, *options.types}),
            url=self._services.settings.resolved_public_url,
        )

    async def _roles(self, visitor: Visitor) -> list[str]:
        """ARNs of the roles that the visitor may pass."""
        services = self._services
        passing = services.identity.passing
        mode = services.settings.roles
        every = await services.database.read(lambda session: list(session.scalars(select(roles.c.arn).limit(200))))
        listed = await passing.listed(services.database, mode, visitor.principal)
        return sorted(arn for arn in every if listed is None or arn in listed)

    async def _empty(self, visitor: Visitor) -> dict[str, Any]:
        """A request that is valid but for its name and places in S3."""
        known = await self._roles(visitor)
        settings = self._services.settings
        bucket = f"sagemaker-{settings.region}-{settings.account_id}"
        return {
            "TrainingJobName": "",
            "RoleArn": known[0] if known else "",
            "AlgorithmSpecification": {"TrainingImage": "pytorch-training:2.13-cpu-py311", "TrainingInputMode": "File"},
            "HyperParameters": {},
            "OutputDataConfig": {"S3OutputPath": f"s3://{bucket}/"},
            "ResourceConfig": {"InstanceType": "ml.c5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30},
            "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
        }

    async def _cloned(self, caller: Caller, name: str) -> dict[str, Any]:
        """The request of a job under the next name that is free. ApiError 404, 403."""
        caller.require("sagemaker:DescribeTrainingJob")

        def read(session: Any) -> dict[str, Any]:
            row = session.execute(select(jobs.c.arn, jobs.c.request, jobs.c.user_id).where(jobs.c.name == name)).first()
            if row is None:
                raise not_found()
            caller.reach.require(row.user_id)
            given = get_tags(session, row.arn)
            spec = {**row.request, "TrainingJobName": _next_name(session, name)}
            return {**spec, "Tags": given} if given else spec

        return await self._services.database.read(read)


def _next_name(session: Any, name: str) -> str:
    """`train` → `train-2`, `train-2` → `train-3`; the first that no job has."""
    match = _NUMBERED.fullmatch(name)
    stem, number = (match[1], int(match[2])) if match else (name, 1)
    while True:
        number += 1
        wanted = f"{stem[: _MAX_NAME - 1 - len(str(number))]}-{number}"
        if session.scalar(select(jobs.c.id).where(jobs.c.name == wanted)) is None:
            return wanted
