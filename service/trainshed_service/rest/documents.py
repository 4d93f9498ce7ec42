"""The OpenAPI documents of operations that botocore's model describes, and the schemas that they refer to."""

from __future__ import annotations

from typing import Any

from trainshed_service.rest.schemas import Schema, Schemas

SCHEMAS = Schemas()
_NAME = frozenset({"TrainingJobName"})
ERROR: Schema = {
    "type": "object",
    "required": ["code", "message"],
    "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
}
SCHEMAS.components["Error"] = ERROR
SCHEMAS.components["DryRun"] = {
    "type": "object",
    "required": ["valid", "refusals"],
    "properties": {
        "valid": {"type": "boolean"},
        "refusals": {"type": "array", "items": {"$ref": "#/components/schemas/Error"}},
        "notices": {"type": "array", "items": {"type": "string"}},
        "allocation": {"type": "object"},
    },
}
_EXTENDED: dict[str, Schema] = {
    "State": {"type": "string"},
    "Terminal": {"type": "boolean"},
    "StatusMessage": {"type": "string"},
    "Notices": {"type": "array", "items": {"type": "string"}},
    "WaitingReason": {"type": "string"},
    "QueuePosition": {"type": ["integer", "null"]},
    "ProjectedStart": {"type": ["number", "null"]},
    "StandIn": {"type": "boolean"},
    "Attempts": {"type": "array", "items": {"type": "object"}},
    "LogStreamNames": {"type": "array", "items": {"type": "string"}},
    "LogContact": {"type": "array", "items": {"type": "object"}},
    "Phases": {"type": "array", "items": {"type": "object"}},
}


def operation_docs(
    operation: str, *, from_query: bool = False, named: bool = False, described: bool = False, dry_run: bool = False
) -> dict[str, Any]:
    """`openapi_extra` of a route that runs a SageMaker operation."""
    document: dict[str, Any] = {}
    status = {"CreateTrainingJob": "201", "StopTrainingJob": "202", "DeleteTrainingJob": "202"}.get(operation, "200")
    more = _EXTENDED if described else None
    document["responses"] = {status: _json(SCHEMAS.response(operation, more=more), "as AWS answers the operation")}
    if from_query:
        document["parameters"] = SCHEMAS.parameters(operation)
    elif operation in ("CreateTrainingJob", "Search") or named:
        schema = SCHEMAS.request(operation, without=_NAME if named else frozenset())
        document["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    if dry_run:
        flag = {"name": "dryRun", "in": "query", "required": False, "schema": {"type": "boolean"}}
        document["parameters"] = [flag]
        document["responses"]["200"] = _json({"$ref": "#/components/schemas/DryRun"}, "with dryRun=true")
    return document


def parameter(name: str, schema: Schema, description: str = "") -> Schema:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": description}


def _json(schema: Schema, description: str) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
