"""`/v1/roles`: what jobs run as, and the unit of sharing. Administrators make and delete them; everybody sees those
that they may pass to a job."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from trainshed_service.events import record
from trainshed_service.rest import calls
from trainshed_service.rest.auth import Caller, authenticate
from trainshed_service.rest.bodies import Body, docs, parse
from trainshed_service.store.models import Role
from trainshed_service.store.tables import role_passes, users
from trainshed_service.wire.errors import ApiError

router = APIRouter(tags=["roles"])
Authenticated = Annotated[Caller, Depends(authenticate)]


class NewRole(Body):
    name: str = Field(min_length=1, max_length=256, description="a name, or the whole ARN of a role of any account")


@router.get("/v1/roles")
async def list_roles(request: Request, caller: Authenticated) -> Response:
    """The roles that the caller may give to a job."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    caller.require("trainshed:ListRoles")
    listed = await _listed(caller)
    found = await caller.services.database.read(caller.services.identity.list_roles)
    return JSONResponse({"roles": [_shown(role) for role in found if listed is None or role.arn in listed]})


@router.post("/v1/roles", status_code=201, openapi_extra=docs(NewRole))
async def create_role(request: Request, caller: Authenticated) -> Response:
    """Make a role known. A job in it reaches its own inputs and outputs, as in every role."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    caller.require_admin("create roles")
    body = parse(NewRole, caller)
    services = caller.services

    def make(session: Session) -> dict[str, Any]:
        role = services.identity.create_role(session, body.name)
        _tell(session, caller, "role.created", role.arn, "Role created")
        return _shown(role)

    answer = await services.database.write(make)
    services.events.published()
    return JSONResponse(answer, status_code=201)


@router.get("/v1/roles/{name:path}")
async def show_role(name: str, request: Request, caller: Authenticated) -> Response:
    """A role by its name or ARN; for administrators with the users on whose lists it is."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    caller.require("trainshed:ListRoles")
    identity = caller.services.identity
    listed = await _listed(caller)

    def read(session: Session) -> dict[str, Any]:
        role = identity.resolve_role(session, name)
        if listed is not None and role.arn not in listed:
            raise ApiError("NoSuchEntity", f"The role with name {name[:300]} cannot be found.", 404)
        if not caller.principal.is_admin:
            return _shown(role)
        query = (
            select(users.c.name)
            .join(role_passes, role_passes.c.user_id == users.c.id)
            .where(role_passes.c.role_arn == role.arn)
            .order_by(users.c.name)
        )
        return {**_shown(role), "allowedUsers": list(session.scalars(query))}

    return JSONResponse(await caller.services.database.read(read))


@router.delete("/v1/roles/{name:path}")
async def delete_role(name: str, request: Request, caller: Authenticated) -> Response:
    """Delete a role that no job, warm pool or quota uses. It leaves the lists of users."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    caller.require_admin("delete roles")
    services = caller.services

    def drop(session: Session) -> str:
        arn = services.identity.resolve_role(session, name).arn
        services.identity.delete_role(session, arn)
        _tell(session, caller, "role.deleted", arn, "Role deleted")
        return arn

    arn = await services.database.write(drop)
    services.events.published()
    return JSONResponse({"arn": arn})


async def _listed(caller: Caller) -> frozenset[str] | None:
    services = caller.services
    return await services.identity.passing.listed(services.database, services.settings.roles, caller.principal)


def _shown(role: Role) -> dict[str, Any]:
    return {"name": role.name, "arn": role.arn, "createdAt": role.created_at}


def _tell(session: Session, caller: Caller, kind: str, arn: str, message: str) -> None:
    subject = f"role/{arn}"[:256]
    record(session, caller.services.clock.now(), kind, subject, message, {"by": caller.principal.name})
