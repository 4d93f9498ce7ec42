"""`/v1/queue`: the jobs that wait, in the order in which they are looked at."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse

from trainshed_service.rest import calls
from trainshed_service.rest.auth import Caller, authenticate
from trainshed_service.rest.documents import parameter

router = APIRouter(tags=["training jobs"])
Authenticated = Annotated[Caller, Depends(authenticate)]
_DEFAULT, _MOST = 100, 1000
_MOST_SKIPPED = 10_000_000
_OFFSET = parameter(
    "offset", {"type": "integer", "minimum": 0, "maximum": _MOST_SKIPPED}, "how many of the first to leave out"
)
_LIMIT = parameter("limit", {"type": "integer", "minimum": 1, "maximum": _MOST}, "how many to show")


@router.get("/v1/queue", openapi_extra={"parameters": [_LIMIT, _OFFSET]})
async def get_queue(request: Request, caller: Authenticated) -> Response:
    """Jobs that wait, the next one first: place, why each waits, and its projected start (epoch seconds), and how many
    wait in all. A user sees its own."""
    calls.refuse_unknown(request.query_params.multi_items(), ["limit", "offset"])
    caller.require("sagemaker:ListTrainingJobs")
    most = calls.integer(request.query_params, "limit", _DEFAULT, 1, _MOST)
    skip = calls.integer(request.query_params, "offset", 0, 0, _MOST_SKIPPED)
    scheduler, owner = caller.services.nodes.scheduler, caller.reach.owner
    return JSONResponse({"jobs": scheduler.queue(most, owner, skip), "total": scheduler.waiting(owner)})
