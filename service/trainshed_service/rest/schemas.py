"""JSON schemas for OpenAPI, from botocore's own service model: every constraint that a request must satisfy.

Invariant: a schema never refuses what the service accepts. So patterns are given only where they mean the same in JSON
schema, and objects are closed (`additionalProperties: false`) because REST refuses unknown members by name.
"""

from __future__ import annotations

import re
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StringShape, StructureShape

from trainshed_service.wire.models import operation_model

Schema = dict[str, Any]
_JAVA_ONLY = re.compile(r"\\p|\\u(?![0-9a-fA-F]{4})|\\u[dD][89a-fA-F]|\(\?<|&&|\\[AZzQE]")
"""What JSON schema's regular expressions (JavaScript's) do not know, or understand otherwise."""


class Schemas:
    """Collects the components that are referred to; `components` is what OpenAPI wants."""

    def __init__(self) -> None:
        self.components: dict[str, Schema] = {}

    def request(self, operation: str, *, without: frozenset[str] = frozenset()) -> Schema:
        """A reference to the request of a SageMaker operation. `without`: members that are given elsewhere."""
        model = operation_model("sagemaker", operation)
        assert model is not None and isinstance(model.input_shape, StructureShape)
        shape = model.input_shape
        if not without:
            return self._structure(shape, closed=True)
        schema = self._object(shape, closed=True)
        schema["properties"] = {name: each for name, each in schema["properties"].items() if name not in without}
        schema["required"] = [name for name in schema.get("required", []) if name not in without]
        if not schema["required"]:
            del schema["required"]
        name = f"{shape.name}Body"
        self.components[name] = schema
        return _reference(name)

    def response(self, operation: str, *, more: dict[str, Schema] | None = None) -> Schema:
        """A reference to the response of a SageMaker operation, with further properties of ours."""
        model = operation_model("sagemaker", operation)
        assert model is not None
        shape = model.output_shape
        if not isinstance(shape, StructureShape):
            return {"type": "object"}
        schema = self._object(shape, closed=False)
        schema["properties"].update(more or {})
        schema.pop("required", None)
        self.components[f"{operation}Response"] = schema
        return _reference(f"{operation}Response")

    def parameters(self, operation: str) -> list[Schema]:
        """The members of an operation's request as query parameters; those that are not scalar are left out."""
        model = operation_model("sagemaker", operation)
        assert model is not None and isinstance(model.input_shape, StructureShape)
        return [
            {"name": name, "in": "query", "required": False, "schema": self.schema(shape, closed=True)}
            for name, shape in model.input_shape.members.items()
            if not isinstance(shape, (StructureShape, ListShape, MapShape))
        ]

    def schema(self, shape: Shape, *, closed: bool) -> Schema:
        if isinstance(shape, StructureShape):
            return self._structure(shape, closed=closed)
        if isinstance(shape, ListShape):
            schema: Schema = {"type": "array", "items": self.schema(shape.member, closed=closed)}
            return schema | _bounds(shape, "minItems", "maxItems")
        if isinstance(shape, MapShape):
            schema = {"type": "object", "additionalProperties": self.schema(shape.value, closed=closed)}
            keys = _string(shape.key)
            if len(keys) > 1:
                schema["propertyNames"] = {name: value for name, value in keys.items() if name != "type"}
            return schema | _bounds(shape, "minProperties", "maxProperties")
        return _scalar(shape)

    def _structure(self, shape: StructureShape, *, closed: bool) -> Schema:
        name = shape.name if closed else f"{shape.name}Shown"
        if name not in self.components:
            self.components[name] = {}  # shapes may contain themselves
            self.components[name] = self._object(shape, closed=closed)
        return _reference(name)

    def _object(self, shape: StructureShape, *, closed: bool) -> Schema:
        properties = {name: self.schema(member, closed=closed) for name, member in shape.members.items()}
        schema: Schema = {"type": "object", "properties": properties}
        if shape.required_members:
            schema["required"] = list(shape.required_members)
        if closed:
            schema["additionalProperties"] = False
        return schema


def _reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _scalar(shape: Shape) -> Schema:
    kind = shape.type_name
    if kind in ("integer", "long"):
        bits = 31 if kind == "integer" else 63
        schema: Schema = {"type": "integer", "minimum": -(1 << bits), "maximum": (1 << bits) - 1}
        return schema | _bounds(shape, "minimum", "maximum")
    if kind in ("float", "double"):
        return {"type": "number"} | _bounds(shape, "minimum", "maximum")
    if kind == "boolean":
        return {"type": "boolean"}
    if kind == "timestamp":
        return {
            "description": "epoch seconds, or ISO 8601",
            "oneOf": [{"type": "number"}, {"type": "string", "format": "date-time"}],
        }
    return _string(shape)


def _string(shape: Shape) -> Schema:
    schema: Schema = {"type": "string"} | _bounds(shape, "minLength", "maxLength")
    if isinstance(shape, StringShape) and shape.enum:
        schema["enum"] = list(shape.enum)
    pattern = shape.metadata.get("pattern")
    if pattern and not _JAVA_ONLY.search(pattern):
        body = pattern.removeprefix("^").removesuffix("$") if not pattern.endswith("\\$") else pattern
        schema["pattern"] = f"^(?:{body})$"
    return schema


def _bounds(shape: Shape, lowest: str, highest: str) -> Schema:
    found: Schema = {}
    if shape.metadata.get("min") is not None:
        found[lowest] = shape.metadata["min"]
    if shape.metadata.get("max") is not None:
        found[highest] = shape.metadata["max"]
    return found
