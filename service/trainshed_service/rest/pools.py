"""`/v1/pools`: the warm pools there are, and why a spec or a job does or does not match each."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse
from sqlalchemy import select
from sqlalchemy.orm import Session

from trainshed_service.pools.explain import explain, list_pools
from trainshed_service.rest import calls
from trainshed_service.rest.auth import Caller, authenticate
from trainshed_service.rest.documents import operation_docs
from trainshed_service.sagemaker import validate
from trainshed_service.store.tables import jobs
from trainshed_service.wire.errors import not_found

router = APIRouter(tags=["warm pools"])
Authenticated = Annotated[Caller, Depends(authenticate)]
_REQUEST = {"requestBody": operation_docs("CreateTrainingJob")["requestBody"]}


@router.get("/v1/pools")
async def get_pools(request: Request, caller: Authenticated) -> Response:
    """Warm pools that are available, and clusters in use that may become one."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    caller.require("trainshed:ListPools")
    return JSONResponse(
        {"pools": await caller.services.database.read(lambda session: list_pools(session, caller.reach))}
    )


@router.post("/v1/pools/explain", openapi_extra=_REQUEST)
async def explain_spec(request: Request, caller: Authenticated) -> Response:
    """For a CreateTrainingJob request: each pool with the fields that differ, and what would make it match."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    caller.require("sagemaker:CreateTrainingJob")
    body = calls.body_of(caller)
    validate("CreateTrainingJob", body, strict=True)
    return JSONResponse(await caller.services.database.read(lambda session: explain(session, body, caller.reach)))


@router.get("/v1/training-jobs/{name}/pools")
async def explain_job(name: str, request: Request, caller: Authenticated) -> Response:
    """The same for a job that exists, with why it waits where it does."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    caller.require("sagemaker:DescribeTrainingJob")
    services = caller.services

    def read(session: Session) -> tuple[int, dict[str, Any]]:
        row = session.execute(select(jobs.c.id, jobs.c.request, jobs.c.user_id).where(jobs.c.name == name)).first()
        if row is None:
            raise not_found()
        caller.reach.require(row.user_id)
        return row.id, explain(session, row.request, caller.reach)

    job_id, found = await services.database.read(read)
    return JSONResponse({**found, "waitingReason": services.nodes.scheduler.explain(job_id)})
