"""Bodies of requests that AWS has no operation for: as models, with refusals in words.

Invariant: a member that the model does not know, or whose value is of another type, is refused by its name; nothing is
converted or ignored.
"""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from trainshed_service.rest import calls
from trainshed_service.rest.auth import Caller
from trainshed_service.wire.errors import validation_error


class Body(BaseModel):
    """Members are in camelCase on the wire."""

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)


B = TypeVar("B", bound=Body)


def parse(model: type[B], caller: Caller) -> B:
    """The body of the request. ValidationException names each member that is wrong."""
    content = calls.body_of(caller)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        known = ", ".join(field.alias or name for name, field in model.model_fields.items())
        raise validation_error(_words(error, known)) from None


def docs(model: type[Body]) -> dict[str, Any]:
    """`openapi_extra` of a route with this body."""
    schema = model.model_json_schema()
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _words(error: ValidationError, known: str) -> str:
    found = []
    for each in error.errors(include_url=False, include_input=False)[:10]:
        where = ".".join(str(part) for part in each["loc"])[:200]
        if each["type"] == "extra_forbidden":
            found.append(f"'{where}' is not a member of this request (known are: {known})")
        elif each["type"] == "missing":
            found.append(f"'{where}' must be given")
        else:
            found.append(f"'{where}': {each['msg'][:1].lower()}{each['msg'][1:]}" if where else each["msg"])
    return "; ".join(found) + "."
