"""REST calls as SageMaker operations: the same validation, the same objects, the same answers.

Invariant: a member or query parameter that the operation does not know is refused by its name; nothing is ignored.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from botocore.model import Shape, StructureShape

from trainshed_service.rest.auth import Caller
from trainshed_service.sagemaker import OPERATIONS, validate
from trainshed_service.wire import json_protocol
from trainshed_service.wire.constraints import validator
from trainshed_service.wire.context import Context
from trainshed_service.wire.errors import ApiError, validation_error
from trainshed_service.wire.models import operation_model


async def call(caller: Caller, operation: str, request: dict[str, Any]) -> dict[str, Any]:
    """Authorize, validate and run an operation. ApiError as the AWS wire would give it."""
    caller.require(f"sagemaker:{operation}")
    validate(operation, request, strict=True)
    ctx = Context(
        principal=caller.principal,
        services=caller.services,
        raw_body=caller.body or json_protocol.encode(request),
        request_id=str(uuid.uuid4()),
        service="sagemaker",
        operation=operation,
    )
    normal = validator("sagemaker", operation).normalize(request)
    return await OPERATIONS[operation](ctx, normal) or {}


def body_of(caller: Caller) -> dict[str, Any]:
    """The JSON object in the body. SerializationException."""
    return json_protocol.decode(caller.body)


def named(name: str, body: dict[str, Any]) -> dict[str, Any]:
    """`body` about the job in the path; ValidationException where it names another one."""
    if body.get("TrainingJobName", name) != name:
        raise validation_error(f"TrainingJobName in the body is '{body['TrainingJobName']}', but '{name}' in the path.")
    return {**body, "TrainingJobName": name}


def input_shape(operation: str) -> StructureShape:
    model = operation_model("sagemaker", operation)
    assert model is not None and isinstance(model.input_shape, StructureShape)
    return model.input_shape


def from_query(
    operation: str, pairs: Sequence[tuple[str, str]], also: Mapping[str, type] | None = None
) -> dict[str, Any]:
    """A request from query parameters that are named like the operation's members. `also`: names to leave out."""
    members = input_shape(operation).members
    refuse_unknown(pairs, [*members, *(also or {})])
    request: dict[str, Any] = {}
    for name, text in pairs:
        if name not in members:
            continue
        if name in request:
            raise validation_error(f"The query parameter '{name}' is given more than once.")
        request[name] = _scalar(name, text, members[name])
    return request


def refuse_unknown(pairs: Sequence[tuple[str, str]], known: Sequence[str]) -> None:
    unknown = sorted({name for name, _ in pairs} - set(known))
    if unknown:
        shown = ", ".join(f"'{name[:200]}'" for name in unknown[:20])
        raise validation_error(f"Unknown query parameters: {shown}. Known are: {', '.join(known)}.")


def _scalar(name: str, text: str, shape: Shape) -> Any:
    kind = shape.type_name
    try:
        if kind in ("integer", "long"):
            return int(text)
        if kind == "timestamp":
            try:
                return float(text)
            except ValueError:
                return text  # ISO 8601; the validator looks at it
    except ValueError:
        raise validation_error(f"The query parameter '{name}' is not a whole number: '{text[:100]}'.") from None
    if kind != "string":
        raise validation_error(f"'{name}' cannot be given as a query parameter.")
    return text


def integer(pairs: Mapping[str, str], name: str, default: int, lowest: int, highest: int) -> int:
    """The value of a query parameter within its bounds."""
    text = pairs.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or not lowest <= int(text[:20]) <= highest:
        raise validation_error(f"The query parameter '{name}' is a whole number from {lowest} to {highest}.")
    return int(text)


def boolean(pairs: Mapping[str, str], name: str) -> bool:
    """The value of a query parameter that is `true` or `false`; not given is false."""
    text = pairs.get(name, "false")
    if text not in ("true", "false"):
        raise validation_error(f"The query parameter '{name}' is true or false.")
    return text == "true"


def rest_status(error: ApiError) -> int:
    """The HTTP status that says what AWS's code means: AWS itself answers 400 to nearly everything."""
    if error.message == "Requested resource not found." or error.code.startswith("ResourceNotFound"):
        return 404
    by_code = {"ResourceInUse": 409, "ConflictException": 409, "AccessDeniedException": 403, "ThrottlingException": 429}
    return by_code.get(error.code, error.status)
