"""`/v1/plan`: memory, bytes and time of a sharded training job, and the degree to take; the planner itself is the
runtime's, the installation adds what it knows of instance types."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse

from trainshed_runtime.planner import InstanceFacts, PlanError, answer, from_text
from trainshed_runtime.planner.document import plan_document
from trainshed_runtime.planner.request import MEMBERS
from trainshed_service.providers import known_type
from trainshed_service.rest import calls
from trainshed_service.rest.auth import Caller, authenticate
from trainshed_service.rest.documents import parameter
from trainshed_service.wire.errors import validation_error

router = APIRouter(tags=["planning"])
Authenticated = Annotated[Caller, Depends(authenticate)]
_TEXTS = {
    "params": "parameters of the model, such as 30B",
    "instance": "instance type",
    "count": "instances",
    "processes": "ranks on each instance; default: one per device",
    "degree": "a sharded-data-parallel degree to check",
    "sequence": "tokens of a sample",
    "batch": "samples of a micro-step on each rank; default: 1, and the rule of thumb decides",
    "accumulation": "micro-steps of a step",
    "precision": "bf16, fp16 or fp32",
    "optimizer": "adam, momentum or sgd",
    "checkpointing": "none, each, contiguous or group_N",
    "offload": "true: activations go to the host",
    "horizon": "layers whose activations stay on the device under offload",
    "flash": "true: attention keeps no scores",
    "live": "parameters that stay gathered during a step (sdp_max_live_parameters), such as 1B",
    "memory": "of a device, such as 40GiB",
    "flops": "operations per second of a device, such as 312T",
    "nodeLink": "network of an instance, such as 400Gbit/s",
    "deviceLink": "of a device inside its instance, such as 300GB/s",
    "utilisation": "share of the peak rate that kernels reach",
}
_PARAMETERS = [
    {**parameter(name, {"type": "string"}, _TEXTS.get(name, "of the model")), "required": name in MEMBERS[:2]}
    for name in MEMBERS
]


@router.get("/v1/plan", openapi_extra={"parameters": _PARAMETERS})
async def get_plan(request: Request, caller: Authenticated) -> Response:
    """Each degree with its memory per rank, its bytes per step on each link and its time, and the recommended one."""
    pairs = request.query_params.multi_items()
    calls.refuse_unknown(pairs, MEMBERS)
    caller.require("trainshed:Plan")
    try:
        wanted = from_text(dict(pairs))
        known = known_type(wanted.instance)
        facts = InstanceFacts(known.memory_bytes, known.accelerators) if known is not None else None
        plan = await asyncio.to_thread(answer, wanted, facts)
    except PlanError as error:
        raise validation_error(str(error)) from None
    return JSONResponse(plan_document(plan))
