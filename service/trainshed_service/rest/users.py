"""`/v1/users`, `/v1/access-keys`, `/v1/tokens`: who may use the installation. For administrators; everybody may look at
oneself.

Invariants: a secret is in the one answer that made it and nowhere else; what is changed of a user is told as an event.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from trainshed_service.events import record
from trainshed_service.identity import Credentials
from trainshed_service.identity.users import check_name
from trainshed_service.jobs.states import ACTIVE
from trainshed_service.rest import calls
from trainshed_service.rest.auth import Caller, authenticate
from trainshed_service.rest.bodies import Body, docs, parse
from trainshed_service.services import Services
from trainshed_service.store.models import User
from trainshed_service.store.tables import jobs
from trainshed_service.wire.errors import validation_error

router = APIRouter(tags=["users"])
Authenticated = Annotated[Caller, Depends(authenticate)]
_Role = Annotated[str, Field(min_length=1, max_length=256)]
_DAY = 86_400.0


class NewUser(Body):
    name: str = Field(max_length=64, description="A-Z a-z 0-9 _ + = , . @ -")
    is_admin: bool = False
    may_pass: list[_Role] | None = Field(
        default=None, max_length=100, description="names or ARNs of roles: the user runs jobs in these only"
    )


class UserChange(Body):
    is_admin: bool | None = None
    allow: list[_Role] = Field(default=[], max_length=100, description="roles to put on the user's list")
    deny: list[_Role] = Field(default=[], max_length=100, description="roles to take off the user's list")
    any_role: bool | None = Field(default=None, description="true: the list does not hold (where `roles` is open)")


class KeyChange(Body):
    active: bool


class NewToken(Body):
    name: str = Field(min_length=1, max_length=64)
    expires_in_days: int | None = Field(default=None, ge=1, le=3650)


@router.get("/v1/users")
async def list_users(request: Request, caller: Authenticated) -> Response:
    """All users."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    caller.require_admin("list users")
    services = caller.services

    def read(session: Session) -> list[dict[str, Any]]:
        return [_shown(session, services, user) for user in services.identity.users.all(session)]

    return JSONResponse({"users": await services.database.read(read)})


@router.post("/v1/users", status_code=201, openapi_extra=docs(NewUser))
async def create_user(request: Request, caller: Authenticated) -> Response:
    """A new user with an access key. The key's secret is in this answer only."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    caller.require_admin("create users")
    body = parse(NewUser, caller)
    check_name(body.name)
    services = caller.services

    def make(session: Session) -> dict[str, Any]:
        users = services.identity.users
        user = users.create(session, body.name, is_admin=body.is_admin)
        if body.may_pass is not None:
            users.allow(session, user, _roles(session, services, body.may_pass))
            session.refresh(user)
        key = services.identity.create_access_key(session, user.id)
        _tell(session, caller, "user.created", user.name, "User created")
        return {**_shown(session, services, user), "accessKey": _secret(key)}

    answer = await services.database.write(make)
    services.events.published()
    return JSONResponse(answer, status_code=201, headers={"location": f"/v1/users/{body.name}"})


@router.get("/v1/users/{name}")
async def show_user(name: str, request: Request, caller: Authenticated) -> Response:
    """A user with its keys and tokens (without secrets), its roles and how many of its jobs have not ended."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    _require_self(caller, name)
    services = caller.services

    def read(session: Session) -> dict[str, Any]:
        user = services.identity.users.find(session, name)
        return {
            **_shown(session, services, user),
            "accessKeys": services.identity.users.keys_of(session, user.id),
            "tokens": services.identity.users.tokens_of(session, user.id),
        }

    return JSONResponse(await services.database.read(read))


@router.patch("/v1/users/{name}", openapi_extra=docs(UserChange))
async def change_user(name: str, request: Request, caller: Authenticated) -> Response:
    """Make a user an administrator or not; change the list of roles that it may run jobs in."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    caller.require_admin("change users")
    body = parse(UserChange, caller)
    if body.any_role and body.allow:
        raise validation_error("'anyRole' lifts the list of roles, 'allow' makes it hold: give one of them.")
    services = caller.services

    def change(session: Session) -> dict[str, Any]:
        users = services.identity.users
        user = users.find(session, name)
        if body.is_admin is not None:
            users.set_admin(session, user, body.is_admin)
        if body.allow:
            users.allow(session, user, _roles(session, services, body.allow))
        if body.deny:
            users.deny(session, user, _roles(session, services, body.deny))
        if body.any_role is not None:
            users.restrict(session, user, not body.any_role)
        session.refresh(user)
        shown = body.model_dump(exclude_defaults=True, by_alias=True)
        _tell(session, caller, "user.changed", name, "User changed", shown)
        return _shown(session, services, user)

    answer = await services.database.write(change)
    services.identity.forget_keys()
    services.events.published()
    return JSONResponse(answer)


@router.delete("/v1/users/{name}")
async def delete_user(name: str, request: Request, caller: Authenticated) -> Response:
    """Delete a user: its keys, tokens and sessions work no more. Its jobs stay, and those that run go on."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    caller.require_admin("delete users")
    services = caller.services

    def drop(session: Session) -> tuple[dict[str, Any], Any]:
        user = services.identity.users.find(session, name)
        active = _active_jobs(session, user.id)
        had_hard = services.quotas.lock(session)
        services.identity.delete_user(session, name)
        _tell(session, caller, "user.deleted", name, "User deleted")
        return {"name": name, "activeJobs": active}, services.quotas.renew(session, had_hard)

    answer, soft = await services.database.write(drop)
    services.quotas.tell(soft)
    services.events.published()
    return JSONResponse(answer)


@router.get("/v1/users/{name}/access-keys")
async def list_keys(name: str, request: Request, caller: Authenticated) -> Response:
    """The access keys of a user, without their secrets."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    _require_self(caller, name)
    users = caller.services.identity.users
    found = await caller.services.database.read(lambda session: users.keys_of(session, users.find(session, name).id))
    return JSONResponse({"accessKeys": found})


@router.post("/v1/users/{name}/access-keys", status_code=201)
async def create_key(name: str, request: Request, caller: Authenticated) -> Response:
    """A further access key of a user. Its secret is in this answer only."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    caller.require_admin("create access keys")
    services = caller.services

    def make(session: Session) -> Credentials:
        user = services.identity.users.find(session, name)
        services.identity.users.need_room_for_key(session, user.id)
        key = services.identity.create_access_key(session, user.id)
        _tell(session, caller, "key.created", name, f"Access key {key.access_key_id} created")
        return key

    return JSONResponse({"user": name, **_secret(await services.database.write(make))}, status_code=201)


@router.patch("/v1/access-keys/{key_id}", openapi_extra=docs(KeyChange))
async def change_key(key_id: str, request: Request, caller: Authenticated) -> Response:
    """Switch an access key off (sessions that were opened with it end) or on again."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    caller.require_admin("change access keys")
    body = parse(KeyChange, caller)
    services = caller.services

    def change(session: Session) -> dict[str, Any]:
        user = services.identity.users.owner_of_key(session, key_id)
        if body.active:
            services.identity.activate_access_key(session, key_id)
        else:
            services.identity.deactivate_access_key(session, key_id)
        words = "on" if body.active else "off"
        _tell(session, caller, "key.changed", user.name, f"Access key {key_id} switched {words}")
        return _key(session, services, user, key_id, body.active)

    answer = await services.database.write(change)
    services.identity.forget_keys()
    return JSONResponse(answer)


@router.delete("/v1/access-keys/{key_id}")
async def delete_key(key_id: str, request: Request, caller: Authenticated) -> Response:
    """Delete an access key; sessions that were opened with it end."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    caller.require_admin("delete access keys")
    services = caller.services

    def drop(session: Session) -> dict[str, Any]:
        user = services.identity.users.owner_of_key(session, key_id)
        answer = _key(session, services, user, key_id, False)
        services.identity.delete_access_key(session, key_id)
        _tell(session, caller, "key.deleted", user.name, f"Access key {key_id} deleted")
        return answer

    answer = await services.database.write(drop)
    services.identity.forget_keys()
    return JSONResponse(answer)


@router.get("/v1/users/{name}/tokens")
async def list_tokens(name: str, request: Request, caller: Authenticated) -> Response:
    """The bearer tokens of a user, each with an id that names it."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    _require_self(caller, name)
    users = caller.services.identity.users
    found = await caller.services.database.read(lambda session: users.tokens_of(session, users.find(session, name).id))
    return JSONResponse({"tokens": found})


@router.post("/v1/users/{name}/tokens", status_code=201, openapi_extra=docs(NewToken))
async def create_token(name: str, request: Request, caller: Authenticated) -> Response:
    """A bearer token for REST. It is in this answer only."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    caller.require_admin("create tokens")
    body = parse(NewToken, caller)
    services = caller.services
    ends = None if body.expires_in_days is None else services.clock.now() + body.expires_in_days * _DAY

    def make(session: Session) -> str:
        user = services.identity.users.find(session, name)
        services.identity.users.check_new_token(session, user.id, body.name)
        _tell(session, caller, "token.created", name, f"Token '{body.name}' created")
        return services.identity.create_bearer_token(session, user.id, body.name, ends)

    token = await services.database.write(make)
    return JSONResponse({"user": name, "name": body.name, "token": token, "expiresAt": ends}, status_code=201)


@router.delete("/v1/tokens/{token_id}")
async def revoke_token(token_id: str, request: Request, caller: Authenticated) -> Response:
    """End a token by its id; sessions that were opened with it end."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    caller.require_admin("revoke tokens")
    services = caller.services

    def drop(session: Session) -> None:
        services.identity.revoke_token(session, token_id)

    await services.database.write(drop)
    return JSONResponse({"id": token_id})


def _require_self(caller: Caller, name: str) -> None:
    if caller.principal.kind != "user" or caller.principal.name != name:
        caller.require_admin("look at other users")


def _roles(session: Session, services: Services, named: list[str]) -> list[str]:
    """ARNs of roles that exist; with open roles one that is named by its ARN comes to be."""
    identity = services.identity
    if services.settings.roles == "open":
        return [
            identity.ensure_role(session, each).arn
            if each.startswith("arn:")
            else identity.resolve_role(session, each).arn
            for each in named
        ]
    return [identity.resolve_role(session, each).arn for each in named]


def _shown(session: Session, services: Services, user: User) -> dict[str, Any]:
    identity = services.identity
    principal = identity.user_principal(session, user.name)
    assert principal is not None  # found in this transaction
    return {
        "name": user.name,
        "arn": principal.arn,
        "isAdmin": bool(user.is_admin),
        "createdAt": user.created_at,
        "anyRole": bool(user.is_admin) or (services.settings.roles == "open" and not user.restricted),
        "mayPass": identity.users.roles_of(session, user.id),
        "activeJobs": _active_jobs(session, user.id),
    }


def _active_jobs(session: Session, user_id: int) -> int:
    live = jobs.c.state.in_([state.value for state in ACTIVE])
    return session.scalar(select(func.count()).select_from(jobs).where(jobs.c.user_id == user_id, live)) or 0


def _key(session: Session, services: Services, user: User, key_id: str, active: bool) -> dict[str, Any]:
    of_home = services.identity.home_key_id(session) == key_id
    return {"user": user.name, "accessKeyId": key_id, "active": active, "isHomeKey": of_home}


def _secret(key: Credentials) -> dict[str, str]:
    return {"accessKeyId": key.access_key_id, "secretAccessKey": key.secret_access_key}


def _tell(
    session: Session, caller: Caller, kind: str, name: str, message: str, change: dict[str, Any] | None = None
) -> None:
    data = {"by": caller.principal.name} | ({"change": change} if change else {})
    record(session, caller.services.clock.now(), kind, f"user/{name}", message, data)
