"""`/v1/training-jobs`: create, list, describe, update, stop, delete. Members are AWS's own, in CamelCase."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse

from trainshed_service.rest import calls, follow
from trainshed_service.rest.auth import Caller, authenticate
from trainshed_service.rest.documents import operation_docs
from trainshed_service.rest.dry_run import dry_run
from trainshed_service.sagemaker import support
from trainshed_service.wire.errors import validation_error

router = APIRouter(tags=["training jobs"])
Authenticated = Annotated[Caller, Depends(authenticate)]


@router.post("/v1/training-jobs", status_code=201, openapi_extra=operation_docs("CreateTrainingJob", dry_run=True))
async def create_training_job(request: Request, caller: Authenticated) -> Response:
    """Create a training job. With `?dryRun=true` nothing is stored: the answer (200) says whether the request is valid,
    what it would be allocated now and what would refuse it."""
    pairs = request.query_params.multi_items()
    calls.refuse_unknown(pairs, ["dryRun"])
    body = calls.body_of(caller)
    asked = request.query_params.get("dryRun", "false")
    if asked not in ("true", "false"):
        raise validation_error("The query parameter 'dryRun' is true or false.")
    if asked == "true":
        return JSONResponse(await dry_run(caller, body))
    answer = await calls.call(caller, "CreateTrainingJob", body)
    location = {"location": f"/v1/training-jobs/{body['TrainingJobName']}"}
    return JSONResponse(answer, status_code=201, headers=location)


@router.get("/v1/training-jobs", openapi_extra=operation_docs("ListTrainingJobs", from_query=True))
async def list_training_jobs(request: Request, caller: Authenticated) -> Response:
    """List jobs, newest first. Filters and paging as in ListTrainingJobs: go on with `NextToken`."""
    query = calls.from_query("ListTrainingJobs", request.query_params.multi_items())
    return JSONResponse(await calls.call(caller, "ListTrainingJobs", query))


@router.get("/v1/training-jobs/{name}", openapi_extra=operation_docs("DescribeTrainingJob", described=True))
async def describe_training_job(name: str, request: Request, caller: Authenticated) -> Response:
    """All that is known of a job: AWS's members and ours (state, notices, why it waits, attempts, hosts, phases)."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    described = await calls.call(caller, "DescribeTrainingJob", {"TrainingJobName": name})
    extended = await caller.services.jobs.describe_extended(name, caller.reach)
    extended.pop("Description")
    # What an update has added has its notice here; what the job was made with has it stored.
    extended["Notices"] = list(dict.fromkeys([*extended["Notices"], *support.notices(described)]))
    return JSONResponse({**extended, **described, "LogContact": await follow.contact(caller.services, name)})


@router.patch("/v1/training-jobs/{name}", openapi_extra=operation_docs("UpdateTrainingJob", named=True))
async def update_training_job(name: str, request: Request, caller: Authenticated) -> Response:
    """Change what can be changed of a running job, as UpdateTrainingJob does."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    body = calls.named(name, calls.body_of(caller))
    return JSONResponse(await calls.call(caller, "UpdateTrainingJob", body))


@router.post("/v1/training-jobs/{name}/stop", status_code=202, openapi_extra=operation_docs("StopTrainingJob"))
async def stop_training_job(name: str, request: Request, caller: Authenticated) -> Response:
    """Stop a job: its processes get SIGTERM and their grace, what they wrote is kept. Answers when that is decided."""
    return await _on_job(name, request, caller, "StopTrainingJob", 202)


@router.delete("/v1/training-jobs/{name}", status_code=202, openapi_extra=operation_docs("DeleteTrainingJob"))
async def delete_training_job(name: str, request: Request, caller: Authenticated) -> Response:
    """Delete a job that has ended, with its lines and metrics; the name is free when its slots are empty."""
    return await _on_job(name, request, caller, "DeleteTrainingJob", 202)


@router.post("/v1/search", tags=["search"], openapi_extra=operation_docs("Search"))
async def search(request: Request, caller: Authenticated) -> Response:
    """Search over training jobs with the expressions of SageMaker's Search."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    return JSONResponse(await calls.call(caller, "Search", calls.body_of(caller)))


async def _on_job(name: str, request: Request, caller: Caller, operation: str, status: int) -> Response:
    calls.refuse_unknown(request.query_params.multi_items(), [])
    body: dict[str, Any] = calls.named(name, calls.body_of(caller))
    await calls.call(caller, operation, body)
    return JSONResponse({}, status_code=status)
