"""AWS JSON 1.0 and 1.1: bodies in, bodies out."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import orjson

from trainshed_service.wire.errors import ApiError, serialization_error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def decode(body: bytes) -> dict[str, Any]:
    """The request as an object; an empty body is an empty one. Raises SerializationException for all else."""
    if not body:
        return {}
    try:
        text = body.decode("utf-8")
        value = _DECODER.decode(text)
        if "\\u" in text or "\\U" in text:
            _refuse_lone_surrogates(value)
    except UnicodeError:
        raise serialization_error("The request body is not valid UTF-8.") from None
    except RecursionError:
        raise serialization_error("The request is nested too deeply.") from None
    except ValueError as error:
        raise serialization_error(f"The request body is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise serialization_error("Start of structure or map found where not expected: the body must be an object.")
    return value


def encode(response: dict[str, Any] | None) -> bytes:
    """No response has an empty body, as AWS answers operations without output."""
    if response is None:
        return b""
    try:
        return orjson.dumps(response)
    except TypeError:  # integers above 64 bits and half characters, of a request that is shown again
        return _ENCODER.encode(response).encode()


def encode_error(error: ApiError) -> bytes:
    return _ENCODER.encode({**error.detail, "__type": error.code, "message": error.message}).encode()


def _refuse_lone_surrogates(value: Any) -> None:
    json.dumps(value, ensure_ascii=False).encode("utf-8")
