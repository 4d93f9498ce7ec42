"""`/v1/nodes`, `/v1/roles`, `/v1/whoami`: what the installation has, and who asks."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse
from sqlalchemy import and_, select
from sqlalchemy.orm import Session

from trainshed_service.rest import calls
from trainshed_service.rest.auth import Caller, authenticate
from trainshed_service.store.tables import agents, attempts, instances, jobs, nodes

router = APIRouter(tags=["installation"])
Authenticated = Annotated[Caller, Depends(authenticate)]


@router.get("/v1/nodes")
async def list_nodes(request: Request, caller: Authenticated) -> Response:
    """The slots of all agents, what each holds, and the machine that it is on."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    caller.require("trainshed:ListNodes")
    return JSONResponse({"nodes": await caller.services.database.read(_read_nodes)})


@router.get("/v1/roles")
async def list_roles(request: Request, caller: Authenticated) -> Response:
    """The roles that a job may be given."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    caller.require("trainshed:ListRoles")
    identity = caller.services.identity

    def read(session: Session) -> list[dict[str, Any]]:
        return [
            {"name": role.name, "arn": role.arn, "createdAt": role.created_at} for role in identity.list_roles(session)
        ]

    return JSONResponse({"roles": await caller.services.database.read(read)})


@router.get("/v1/whoami")
async def whoami(request: Request, caller: Authenticated) -> Response:
    """The principal that the token or signature stands for."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    principal = caller.principal
    return JSONResponse(
        {
            "kind": principal.kind,
            "name": principal.name,
            "arn": principal.arn,
            "accountId": principal.account_id,
            "isAdmin": principal.is_admin,
        }
    )


def _read_nodes(session: Session) -> list[dict[str, Any]]:
    held = (
        select(instances.c.node_id, instances.c.host, instances.c.instance_type, jobs.c.name)
        .join(attempts, attempts.c.id == instances.c.attempt_id)
        .join(jobs, jobs.c.id == attempts.c.job_id)
        .where(instances.c.cleared.is_(False))
        .subquery()
    )
    rows = session.execute(
        select(
            nodes.c.id,
            nodes.c.slot,
            nodes.c.state,
            nodes.c.reason,
            nodes.c.instance_types,
            agents.c.id.label("agent_id"),
            agents.c.name.label("agent_name"),
            agents.c.facts,
            agents.c.last_seen_at,
            held.c.name.label("job"),
            held.c.host,
            held.c.instance_type,
        )
        .join(agents, agents.c.id == nodes.c.agent_id)
        .outerjoin(held, and_(held.c.node_id == nodes.c.id))
        .order_by(agents.c.name, nodes.c.slot)
    )
    return [
        {
            "id": row.id,
            "state": row.state,
            "reason": row.reason,
            "instanceTypes": list(row.instance_types or []),
            "slot": row.slot,
            "job": row.job,
            "host": row.host,
            "instanceType": row.instance_type,
            "agent": row.agent_name,
            "agentId": row.agent_id,
            "hostname": row.facts.get("hostname"),
            "isolation": row.facts.get("isolation"),
            "cpus": row.facts.get("cpus"),
            "memoryBytes": row.facts.get("memory_bytes"),
            "lastSeen": row.last_seen_at,
        }
        for row in rows
    ]
