"""IAM: reading roles, and asking whether a role may do what the SDKs ask about. Nothing is changed here.

Every role trusts SageMaker: whether a user may pass a role to a job is decided when the job is created, and these
answers agree with that: a user reads the roles that it may pass. A simulation answers "allowed" for each action and
resource of a role, since what a job may do follows from its own request, not from role policies; all but iam:PassRole,
which is allowed where the user that is asked about (for a role: the caller) may pass it.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from trainshed_service.identity.policy import allows
from trainshed_service.store.models import Role
from trainshed_service.wire.errors import ApiError

if TYPE_CHECKING:
    from trainshed_service.identity import Principal
    from trainshed_service.wire import Context, Operations

Request = dict[str, Any]

_DEFAULT_PAGE = 100
_TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}


async def get_role(ctx: Context, request: Request) -> dict[str, Any]:
    name = request["RoleName"]
    listed = await _listed(ctx, ctx.principal)
    if listed is None and ctx.services.settings.roles == "open" and "/" not in name:
        known = await ctx.services.database.read(
            lambda session: ctx.services.identity.get_role(session, name) is not None
        )
        if not known:
            own = f"arn:aws:iam::{ctx.services.settings.account_id}:role/{name}"
            await ctx.services.identity.admit_role(ctx.services.database, own)
    role = await ctx.services.database.read(lambda session: ctx.services.identity.get_role(session, name))
    if role is None:
        raise ApiError("NoSuchEntity", f"The role with name {name} cannot be found.", 404)
    if listed is not None and role.arn not in listed:
        raise _denied(ctx.principal, "iam:GetRole", role.arn)
    return {"Role": {**_shown(role), "MaxSessionDuration": 3600, "Description": "A role for training jobs."}}


async def list_roles(ctx: Context, request: Request) -> dict[str, Any]:
    identity, prefix = ctx.services.identity, request.get("PathPrefix", "/")
    roles = await ctx.services.database.read(identity.list_roles)
    listed = await _listed(ctx, ctx.principal)
    mine = [role for role in roles if listed is None or role.arn in listed]
    shown = [entry for entry in map(_shown, mine) if entry["Path"].startswith(prefix)]
    marker = request.get("Marker")
    if marker is not None:
        (last,) = identity.page_tokens.read("iam:ListRoles", {"PathPrefix": prefix}, marker)
        shown = [entry for entry in shown if entry["RoleName"] > last]
    limit = request.get("MaxItems", _DEFAULT_PAGE)
    response: dict[str, Any] = {"Roles": shown[:limit], "IsTruncated": len(shown) > limit}
    if len(shown) > limit:
        last = shown[limit - 1]["RoleName"]
        response["Marker"] = identity.page_tokens.issue("iam:ListRoles", {"PathPrefix": prefix}, [last])
    return response


async def simulate_principal_policy(ctx: Context, request: Request) -> dict[str, Any]:
    source = request["PolicySourceArn"]
    match = re.fullmatch(r"arn:aws[a-z\-]*:iam::(\d{12}):(role|user)/.+", source)
    if match is None:
        raise ApiError("InvalidInput", f"Invalid Entity Arn: {source} is not the ARN of a user or role.")
    about = await _simulated(ctx, source, is_role=match[2] == "role")
    listed = await _listed(ctx, about)
    results = [
        {
            "EvalActionName": action,
            "EvalResourceName": resource,
            "EvalDecision": "allowed" if _may(about, listed, action, resource, match[2] == "role") else "implicitDeny",
            "MatchedStatements": [],
            "MissingContextValues": [],
        }
        for action in request["ActionNames"]
        for resource in request.get("ResourceArns") or ["*"]
    ]
    return {"EvaluationResults": results, "IsTruncated": False}


async def _simulated(ctx: Context, source: str, *, is_role: bool) -> Principal:
    """Who is asked about: the user of this ARN; the caller where it is a role that the caller may pass."""
    services, caller = ctx.services, ctx.principal
    if is_role:
        if services.settings.roles != "open":
            found = await services.database.read(lambda session: services.identity.find_role(session, source))
            if found is None:
                raise ApiError("NoSuchEntity", f"The entity {source} cannot be found.", 404)
        if not await services.identity.passing.may(services.database, services.settings.roles, caller, source):
            raise _denied(caller, "iam:SimulatePrincipalPolicy", source)
        if services.settings.roles == "open":
            await services.identity.admit_role(services.database, source)
        return caller
    name = source.rsplit("/", 1)[-1]
    if not caller.is_admin and caller.name != name:
        raise _denied(caller, "iam:SimulatePrincipalPolicy", source)
    about = await services.database.read(lambda session: services.identity.user_principal(session, name))
    if about is None:
        raise ApiError("NoSuchEntity", f"The entity {source} cannot be found.", 404)
    return about


def _may(about: Principal, listed: frozenset[str] | None, action: str, resource: str, is_role: bool) -> bool:
    if action.lower() != "iam:passrole":
        return is_role or allows(about, action, resource)
    return listed is None or resource in listed


async def _listed(ctx: Context, principal: Principal) -> frozenset[str] | None:
    services = ctx.services
    return await services.identity.passing.listed(services.database, services.settings.roles, principal)


def _denied(principal: Principal, action: str, resource: str) -> ApiError:
    return ApiError(
        "AccessDenied",
        f"User: {principal.arn} is not authorized to perform: {action} on resource: {resource} because no "
        f"identity-based policy allows the {action} action",
        403,
    )


def _shown(role: Role) -> dict[str, Any]:
    path = role.arn.split(":role", 1)[1]
    return {
        "Path": path[: len(path) - len(role.name)] or "/",
        "RoleName": role.name,
        "RoleId": "AROA" + hashlib.sha256(role.arn.encode()).hexdigest()[:17].upper(),
        "Arn": role.arn,
        "CreateDate": role.created_at,
        "AssumeRolePolicyDocument": quote(json.dumps(_TRUST)),
    }


OPERATIONS: Operations = {
    "GetRole": get_role,
    "ListRoles": list_roles,
    "SimulatePrincipalPolicy": simulate_principal_policy,
}
