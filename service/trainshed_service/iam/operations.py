"""IAM: reading roles, and asking whether a role may do what the SDKs ask about. Nothing is changed here.

Every role trusts SageMaker: whether a role may be passed to a job is decided when the job is created. A simulation
answers "allowed" for each action and resource: what a job may do follows from its own request, not from role policies.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from trainshed_service.store.models import Role
from trainshed_service.wire.errors import ApiError

if TYPE_CHECKING:
    from trainshed_service.wire import Context, Operations

Request = dict[str, Any]

_DEFAULT_PAGE = 100
_TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}


async def get_role(ctx: Context, request: Request) -> dict[str, Any]:
    name = request["RoleName"]
    if ctx.services.settings.roles == "open" and "/" not in name:
        known = await ctx.services.database.read(
            lambda session: ctx.services.identity.get_role(session, name) is not None
        )
        if not known:
            own = f"arn:aws:iam::{ctx.services.settings.account_id}:role/{name}"
            await ctx.services.identity.admit_role(ctx.services.database, own)
    role = await ctx.services.database.read(lambda session: ctx.services.identity.get_role(session, name))
    if role is None:
        raise ApiError("NoSuchEntity", f"The role with name {name} cannot be found.", 404)
    return {"Role": {**_shown(role), "MaxSessionDuration": 3600, "Description": "A role for training jobs."}}


async def list_roles(ctx: Context, request: Request) -> dict[str, Any]:
    identity, prefix = ctx.services.identity, request.get("PathPrefix", "/")
    roles = await ctx.services.database.read(identity.list_roles)
    shown = [entry for entry in map(_shown, roles) if entry["Path"].startswith(prefix)]
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
    if match[2] == "role" and ctx.services.settings.roles == "open":
        await ctx.services.identity.admit_role(ctx.services.database, source)
    elif match[2] == "role":
        found = await ctx.services.database.read(lambda session: ctx.services.identity.find_role(session, source))
        if found is None:
            raise ApiError("NoSuchEntity", f"The entity {source} cannot be found.", 404)
    resources = request.get("ResourceArns") or ["*"]
    results = [
        {
            "EvalActionName": action,
            "EvalResourceName": resource,
            "EvalDecision": "allowed",
            "MatchedStatements": [],
            "MissingContextValues": [],
        }
        for action in request["ActionNames"]
        for resource in resources
    ]
    return {"EvaluationResults": results, "IsTruncated": False}


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
