"""What CreateTrainingJob would do: is it valid, what would it get now, what would refuse it. Nothing is stored.

Invariant: every check that a real create makes runs here too, and the placement is the planner's own, on its own state.
"""

from __future__ import annotations

from typing import Any

from trainshed_service.jobs.priority import priority_of
from trainshed_service.jobs.spec import gang
from trainshed_service.providers import known_type
from trainshed_service.rest.auth import Caller
from trainshed_service.sagemaker import validate
from trainshed_service.sagemaker.operations import require_role
from trainshed_service.wire.errors import ApiError


async def dry_run(caller: Caller, request: dict[str, Any]) -> dict[str, Any]:
    """`valid`, `refusals` (all that could be found out) and, where valid, `notices` and `allocation`."""
    caller.require("sagemaker:CreateTrainingJob")
    services = caller.services
    try:
        notices = validate("CreateTrainingJob", request, strict=True)
    except ApiError as error:
        return {"valid": False, "refusals": [_refusal(error)]}
    refusals: list[dict[str, str]] = []
    for check in (
        require_role(services, caller.principal, request["RoleArn"]),
        services.jobs.check_new(request, caller.principal),
    ):
        try:
            notices += await check or []
        except ApiError as error:
            refusals.append(_refusal(error))
    if refusals:
        return {"valid": False, "refusals": refusals}
    return {"valid": True, "refusals": [], "notices": notices, "allocation": _allocation(caller, request)}


def _allocation(caller: Caller, request: dict[str, Any]) -> dict[str, Any]:
    principal = caller.principal
    priority = priority_of(request.get("Tags") or [], principal)
    found = caller.services.nodes.scheduler.preview(request, principal.user_id, priority)
    nodes = found.nodes
    hosts = []
    for rank, member in enumerate(gang(request)):
        known = known_type(member.instance_type)
        hosts.append(
            {
                "host": f"algo-{rank + 1}",
                "instanceType": member.instance_type,
                "instanceGroup": member.group,
                "vcpus": known.vcpus if known else None,
                "memoryBytes": known.memory_bytes if known else None,
                "accelerators": known.accelerators if known else None,
                "nodeId": nodes[rank] if nodes else None,
            }
        )
    return {
        "startsNow": nodes is not None,
        "warmPool": found.pool,
        "waitingReason": found.reason,
        "jobsAhead": found.ahead,
        "projectedStart": found.projected_start,
        "hosts": hosts,
    }


def _refusal(error: ApiError) -> dict[str, str]:
    return {"code": error.code, "message": error.message}
