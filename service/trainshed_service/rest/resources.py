"""`/v1/nodes`, `/v1/whoami`, `/v1/login-links`: what the installation has, who asks, and a way in."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse
from sqlalchemy import and_, select
from sqlalchemy.orm import Session

from trainshed_service.identity import LINK_SECONDS, key_origin, token_origin
from trainshed_service.jobs.reach import Reach
from trainshed_service.rest import calls
from trainshed_service.rest.auth import Caller, authenticate
from trainshed_service.store.tables import agents, attempts, instances, jobs, nodes
from trainshed_service.wire.errors import ApiError, validation_error

router = APIRouter(tags=["installation"])
Authenticated = Annotated[Caller, Depends(authenticate)]


@router.get("/v1/nodes")
async def list_nodes(request: Request, caller: Authenticated) -> Response:
    """The slots of all agents, what each holds, and the machine that it is on."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    caller.require("trainshed:ListNodes")
    return JSONResponse(
        {"nodes": await caller.services.database.read(lambda session: read_nodes(session, caller.reach))}
    )


@router.post("/v1/nodes/{node_id}/drain")
async def drain_node(node_id: str, request: Request, caller: Authenticated) -> Response:
    """Give the node no new job: the job on it goes on, its warm pool ends. Stays so until `undrain`."""
    return await _set_draining(node_id, True, request, caller)


@router.post("/v1/nodes/{node_id}/undrain")
async def undrain_node(node_id: str, request: Request, caller: Authenticated) -> Response:
    """Give a node that is being drained jobs again."""
    return await _set_draining(node_id, False, request, caller)


async def _set_draining(node_id: str, draining: bool, request: Request, caller: Caller) -> Response:
    calls.refuse_unknown(request.query_params.multi_items(), [])
    caller.require_admin("drain nodes")
    if caller.body.strip() not in (b"", b"{}"):
        raise validation_error("This call has no body.")
    await caller.services.nodes.set_draining(node_id, draining, caller.principal.name)
    return JSONResponse({"id": node_id, "draining": draining})


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


@router.post("/v1/login-links", status_code=201)
async def create_login_link(request: Request, caller: Authenticated) -> Response:
    """A link that logs its opener in to the dashboard as the caller: once, within five minutes."""
    calls.refuse_unknown(request.query_params.multi_items(), [])
    user_id = caller.principal.user_id
    if user_id is None:
        raise ApiError("AccessDeniedException", "Only users log in to the dashboard, not jobs.", 403)
    origin = _credential(request)
    services = caller.services
    token = await services.database.write(
        lambda session: services.identity.sessions.issue_link(session, user_id, origin)
    )
    url = f"{services.settings.resolved_public_url}/login?once={token}"
    return JSONResponse({"url": url, "expiresAt": services.clock.now() + LINK_SECONDS}, status_code=201)


def _credential(request: Request) -> str:
    """The name of the token or key that this (verified) request was made with: with its end, what it opened ends."""
    header = request.headers.get("authorization", "")
    scheme, _, rest = header.partition(" ")
    if scheme.lower() == "bearer":
        return token_origin(rest.strip())
    signed = header or request.query_params.get("X-Amz-Credential", "")
    return key_origin(signed.partition("Credential=")[2].partition("/")[0] if header else signed.partition("/")[0])


def read_nodes(session: Session, reach: Reach) -> list[dict[str, Any]]:
    """Every slot with its state, its machine and the job on it, ordered by machine and slot. The name of a job that is
    out of reach is not told."""
    held = (
        select(instances.c.node_id, instances.c.host, instances.c.instance_type, jobs.c.name, jobs.c.user_id)
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
            nodes.c.draining_since,
            agents.c.id.label("agent_id"),
            agents.c.name.label("agent_name"),
            agents.c.facts,
            agents.c.last_seen_at,
            held.c.name.label("job"),
            held.c.user_id,
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
            "drainingSince": row.draining_since,
            "instanceTypes": list(row.instance_types or []),
            "slot": row.slot,
            "job": row.job if reach.refusal(row.user_id) is None else None,
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
