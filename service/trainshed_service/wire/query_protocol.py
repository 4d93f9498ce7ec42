"""The AWS query protocol: a form in, XML out, both shaped by botocore's model of the operation.

Times are epoch seconds inside, as in JSON; on the wire ISO 8601. Everything that is rendered is escaped, and characters
that XML cannot carry are replaced, so an answer always parses.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from botocore.model import ListShape, MapShape, OperationModel, ServiceModel, Shape, StructureShape

from trainshed_service.wire.errors import ApiError, serialization_error

MAX_FIELDS = 10_000
_MAX_DEPTH = 16
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Form = dict[str, str]


def parse_form(body: bytes) -> Form:
    """The fields of a form. Raises SerializationException where it is none."""
    try:
        pairs = parse_qsl(
            body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS, separator="&"
        )
    except ValueError:
        raise serialization_error("The request body is not a form in UTF-8.") from None
    return dict(pairs)


def decode(form: Mapping[str, str], shape: Shape | None) -> tuple[dict[str, Any], list[str]]:
    """(request, names of fields that the model does not know)."""
    tree = _Node()
    for name, value in form.items():
        if name in ("Action", "Version") or name.startswith("X-Amz-"):
            continue
        parts = name.split(".")
        if len(parts) > _MAX_DEPTH:
            raise serialization_error(f"The parameter '{name[:100]}…' is nested too deeply.")
        node = tree
        for part in parts:
            node = node.children.setdefault(part, _Node())
        node.value = value
    unknown: list[str] = []
    if shape is None:
        return {}, sorted(tree.children)
    return _structure(tree, shape, "", unknown), unknown


def render(model: ServiceModel, operation: OperationModel, response: dict[str, Any] | None, request_id: str) -> bytes:
    name = operation.name
    result = ""
    output = operation.output_shape
    if output is not None:
        wrapper = output.serialization.get("resultWrapper", f"{name}Result")
        result = f"<{wrapper}>{_xml_members(output, response or {})}</{wrapper}>"
    return (
        f'<{name}Response xmlns="{_namespace(model)}">{result}'
        f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata></{name}Response>"
    ).encode()


def render_error(namespace: str, error: ApiError, request_id: str) -> bytes:
    kind = "Sender" if error.status < 500 else "Receiver"
    return (
        f'<ErrorResponse xmlns="{namespace}"><Error><Type>{kind}</Type><Code>{_text(error.code)}</Code>'
        f"<Message>{_text(error.message)}</Message></Error><RequestId>{request_id}</RequestId></ErrorResponse>"
    ).encode()


def namespace_of(model: ServiceModel | None) -> str:
    return "https://webservices.amazon.com/doc/" if model is None else _namespace(model)


class _Node:
    """A field of the form, or the fields below it."""

    __slots__ = ("children", "value")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.value: str | None = None


def _structure(node: _Node, shape: Shape, path: str, unknown: list[str]) -> dict[str, Any]:
    assert isinstance(shape, StructureShape)
    by_wire = {_wire_name(member, name): (name, member) for name, member in shape.members.items()}
    found: dict[str, Any] = {}
    for name, child in node.children.items():
        known = by_wire.get(name)
        if known is None:
            unknown.append(path + name)
            continue
        found[known[0]] = _value(child, known[1], f"{path}{name}.", unknown)
    return found


def _value(node: _Node, shape: Shape, path: str, unknown: list[str]) -> Any:
    if isinstance(shape, StructureShape):
        return _structure(node, shape, path, unknown)
    if isinstance(shape, ListShape):
        return _list(node, shape, path, unknown)
    if isinstance(shape, MapShape):
        return _map(node, shape, path, unknown)
    if node.value is None:
        raise serialization_error(f"The parameter '{path[:-1]}' needs a value.")
    return _scalar(node.value, shape, path[:-1])


def _list(node: _Node, shape: ListShape, path: str, unknown: list[str]) -> list[Any]:
    if node.value == "" and not node.children:
        return []
    items = node if shape.serialization.get("flattened") else node.children.get("member", _Node())
    numbered: list[tuple[int, _Node]] = []
    for name, child in items.children.items():
        if not (name.isascii() and name.isdigit() and len(name) < 9):
            raise serialization_error(f"'{path}member.{name[:50]}': members of a list are numbered from 1.")
        numbered.append((int(name), child))
    numbered.sort(key=lambda pair: pair[0])
    return [_value(child, shape.member, f"{path}member.{number}.", unknown) for number, child in numbered]


def _map(node: _Node, shape: MapShape, path: str, unknown: list[str]) -> dict[str, Any]:
    entries = node if shape.serialization.get("flattened") else node.children.get("entry", _Node())
    found: dict[str, Any] = {}
    for number, entry in entries.children.items():
        key, value = entry.children.get("key"), entry.children.get("value")
        if key is None or key.value is None or value is None:
            raise serialization_error(f"'{path}entry.{number[:50]}' needs a key and a value.")
        found[key.value] = _value(value, shape.value, f"{path}entry.{number}.value.", unknown)
    return found


def _scalar(text: str, shape: Shape, path: str) -> Any:
    kind = shape.type_name
    try:
        if kind in ("integer", "long"):
            return int(text)
        if kind in ("float", "double"):
            number = float(text)
            if not math.isfinite(number):
                raise ValueError
            return number
        if kind == "boolean":
            return {"true": True, "false": False}[text.lower()]
        if kind == "timestamp":
            return _epoch(text)
    except (ValueError, KeyError, OverflowError):
        raise serialization_error(f"The value '{text[:100]}' of '{path}' is not of type {kind}.") from None
    return text


def _epoch(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        number = float(text)
        if not math.isfinite(number):
            raise
        return number
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _wire_name(member: Shape, name: str) -> str:
    return str(member.serialization.get("name", name))


def _namespace(model: ServiceModel) -> str:
    return str(model.metadata.get("xmlNamespace", ""))


def _xml_members(shape: Shape, value: Mapping[str, Any]) -> str:
    assert isinstance(shape, StructureShape)
    parts = []
    for name, member in shape.members.items():
        if value.get(name) is not None:
            parts.append(_xml(member, _wire_name(member, name), value[name]))
    return "".join(parts)


def _xml(shape: Shape, tag: str, value: Any) -> str:
    if isinstance(shape, StructureShape):
        return f"<{tag}>{_xml_members(shape, value)}</{tag}>"
    if isinstance(shape, ListShape):
        flattened = bool(shape.serialization.get("flattened"))
        item = tag if flattened else str(shape.member.serialization.get("name", "member"))
        inner = "".join(_xml(shape.member, item, element) for element in value)
        return inner if flattened else f"<{tag}>{inner}</{tag}>"
    if isinstance(shape, MapShape):
        key_tag = str(shape.key.serialization.get("name", "key"))
        value_tag = str(shape.value.serialization.get("name", "value"))
        entries = "".join(
            f"<entry>{_xml(shape.key, key_tag, key)}{_xml(shape.value, value_tag, item)}</entry>"
            for key, item in value.items()
        )
        return f"<{tag}>{entries}</{tag}>"
    return f"<{tag}>{_text(_printed(shape, value))}</{tag}>"


def _printed(shape: Shape, value: Any) -> str:
    if shape.type_name == "boolean":
        return "true" if value else "false"
    if shape.type_name == "timestamp":
        moment = datetime.fromtimestamp(float(value), UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
    return str(value)


def _text(value: str) -> str:
    return escape(_NOT_XML.sub("\N{REPLACEMENT CHARACTER}", value))
