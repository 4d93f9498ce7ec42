"""`/v1/notification-targets`: where events go. Users have their own, administrators see and make all."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from trainshed_service.notifications.kinds import WORDS
from trainshed_service.notifications.targets import MAX_URL
from trainshed_service.rest import calls
from trainshed_service.rest.auth import Caller, authenticate
from trainshed_service.rest.bodies import Body, docs, parse

router = APIRouter(tags=["notifications"])
Authenticated = Annotated[Caller, Depends(authenticate)]


class NewTarget(Body):
    """Without `user` and `mine`: of everybody where an administrator asks, else of the caller."""

    url: str = Field(min_length=1, max_length=MAX_URL, description="https://… (webhook), or a URL of apprise")
    user: str | None = Field(default=None, max_length=64, description="name of the user whose events it gets")
    mine: bool = Field(default=False, description="the caller's own events")
    on: list[str] = Field(default=[], max_length=len(WORDS), description=f"kinds of events: {', '.join(WORDS)}")


@router.get("/v1/notification-targets")
async def list_targets(request: Request, caller: Authenticated) -> Response:
    """The targets, with how delivery to each goes; secrets of their URLs are masked."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    return JSONResponse({"targets": await caller.services.notifications.list(caller.principal)})


@router.post("/v1/notification-targets", status_code=201, openapi_extra=docs(NewTarget))
async def add_target(request: Request, caller: Authenticated) -> Response:
    """A new target; it gets events from now on."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    body = parse(NewTarget, caller)
    made = await caller.services.notifications.add(caller.principal, body.url, body.on, user=body.user, mine=body.mine)
    return JSONResponse(made, 201, headers={"location": f"/v1/notification-targets/{made['id']}"})


@router.delete("/v1/notification-targets/{target_id}")
async def remove_target(target_id: str, request: Request, caller: Authenticated) -> Response:
    """Take a target away."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    return JSONResponse(await caller.services.notifications.remove(caller.principal, target_id))


@router.post("/v1/notification-targets/{target_id}/test")
async def test_target(target_id: str, request: Request, caller: Authenticated) -> Response:
    """Send a test message now and say whether it arrived."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    return JSONResponse(await caller.services.notifications.test(caller.principal, target_id))
