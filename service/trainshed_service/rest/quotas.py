"""`/v1/quotas`: how many instances a user, a role or everybody together may hold. Administrators set them; everybody
sees those that concern them, with what is used."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field
from sqlalchemy.orm import Session

from trainshed_service.providers import known_type
from trainshed_service.quotas import Rule
from trainshed_service.quotas.rules import EVERY_TYPE, EVERYBODY, Kind
from trainshed_service.quotas.service import RuleUse
from trainshed_service.rest import calls
from trainshed_service.rest.auth import Caller, authenticate
from trainshed_service.rest.bodies import Body, docs, parse
from trainshed_service.rest.documents import parameter
from trainshed_service.wire.errors import validation_error

router = APIRouter(tags=["quotas"])
Authenticated = Annotated[Caller, Depends(authenticate)]
_SUBJECT = ("user", "role", "all")
_PARAMETERS = [
    parameter("user", {"type": "string"}, "name of the user"),
    parameter("role", {"type": "string"}, "name or ARN of the role"),
    parameter("all", {"type": "string", "enum": ["true"]}, "everybody together"),
    parameter("instanceType", {"type": "string"}, "'*': all types together"),
]
_MOST = 1_000_000


class NewQuota(Body):
    """One of `user`, `role` and `all`; at least one limit."""

    user: str | None = Field(default=None, max_length=64)
    role: str | None = Field(default=None, max_length=256, description="name or ARN")
    all: bool = False
    instance_type: str = Field(default=EVERY_TYPE, max_length=64, description="'*': all types together")
    instances: int | None = Field(default=None, ge=0, le=_MOST, description="of jobs; null: no limit")
    warm_instances: int | None = Field(default=None, ge=0, le=_MOST, description="of warm pools; null: no limit")
    hard: bool = Field(default=False, description="a job that does not fit is refused; else it waits")


@router.get("/v1/quotas", openapi_extra={"parameters": _PARAMETERS})
async def list_quotas(request: Request, caller: Authenticated) -> Response:
    """The quotas (of one subject or type where asked), with what counts against each now."""
    query = request.query_params
    calls.refuse_unknown(query.multi_items(), [*_SUBJECT, "instanceType"])
    caller.require("trainshed:ListQuotas")
    wanted = await _subject(caller, query.get("user"), query.get("role"), query.get("all") == "true", must=False)
    listed = await caller.services.identity.passing.listed(
        caller.services.database, caller.services.settings.roles, caller.principal
    )
    found = [
        _shown(each)
        for each in await caller.services.quotas.usage()
        if _may_see(caller, listed, each.rule)
        and (wanted is None or (each.rule.subject_kind, each.rule.subject) == wanted)
        and query.get("instanceType") in (None, each.rule.instance_type)
    ]
    return JSONResponse({"quotas": found})


@router.put("/v1/quotas", openapi_extra=docs(NewQuota))
async def put_quota(request: Request, caller: Authenticated) -> Response:
    """Set the quota of a subject for a type; it replaces the one that was there, whole."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    caller.require_admin("set quotas")
    body = parse(NewQuota, caller)
    if body.instances is None and body.warm_instances is None:
        raise validation_error("Give 'instances' or 'warmInstances' or both; DELETE takes a quota away.")
    if body.hard and body.instances is None:
        raise validation_error("'hard' is about 'instances': give a number of them.")
    if body.instance_type != EVERY_TYPE and known_type(body.instance_type) is None:
        raise validation_error(
            f"'{body.instance_type}' is not an instance type of this installation; '*' means all types together."
        )
    subject = await _subject(caller, body.user, body.role, body.all, must=True)
    assert subject is not None
    kind, name = subject
    rule = Rule(kind, name, body.instance_type, body.instances, body.warm_instances, body.hard)
    await caller.services.quotas.put(rule)
    caller.services.events.published()
    uses = await caller.services.quotas.usage()
    key = (kind, name, body.instance_type)
    here = [each for each in uses if (each.rule.subject_kind, each.rule.subject, each.rule.instance_type) == key]
    return JSONResponse(_shown(here[0] if here else RuleUse(rule, 0, 0)))


@router.delete("/v1/quotas", openapi_extra={"parameters": _PARAMETERS})
async def delete_quota(request: Request, caller: Authenticated) -> Response:
    """Take the quota of a subject for a type (default: that for all types together) away."""
    query = request.query_params
    calls.refuse_unknown(query.multi_items(), [*_SUBJECT, "instanceType"])
    caller.require_admin("delete quotas")
    subject = await _subject(caller, query.get("user"), query.get("role"), query.get("all") == "true", must=True)
    assert subject is not None
    kind, name = subject
    rule = Rule(kind, name, query.get("instanceType", EVERY_TYPE), None, None, False)
    await caller.services.quotas.remove(rule)
    caller.services.events.published()
    return JSONResponse({"subjectKind": kind, "subject": name, "instanceType": rule.instance_type})


async def _subject(
    caller: Caller, user: str | None, role: str | None, everybody: bool, *, must: bool
) -> tuple[Kind, str] | None:
    """Kind and subject as they are stored. NoSuchEntity; ValidationException for none (where one `must` be) or two."""
    if sum((user is not None, role is not None, everybody)) > 1 or (must and not (user or role or everybody)):
        raise validation_error("Give exactly one of 'user', 'role' and 'all'.")
    identity = caller.services.identity

    def find(session: Session) -> tuple[Kind, str] | None:
        if user is not None:
            return "user", identity.users.find(session, user).name
        if role is not None:
            return "role", identity.resolve_role(session, role).arn
        return None

    return ("all", EVERYBODY) if everybody else await caller.services.database.read(find)


def _may_see(caller: Caller, listed: frozenset[str] | None, rule: Rule) -> bool:
    if caller.principal.is_admin or rule.subject_kind == "all":
        return True
    if rule.subject_kind == "user":
        return rule.user_id == caller.principal.user_id
    return listed is None or rule.subject in listed


def _shown(each: RuleUse) -> dict[str, Any]:
    rule = each.rule
    return {
        "subjectKind": rule.subject_kind,
        "subject": rule.subject,
        "instanceType": rule.instance_type,
        "instances": rule.instances,
        "warmInstances": rule.warm_instances,
        "hard": rule.hard,
        "used": each.used,
        "warmUsed": each.warm_used,
    }
