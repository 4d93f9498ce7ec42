"""Hyperparameters: what the request says (a flat map of strings), and what it means.

SDK v2 sends each value JSON-encoded (`"abc"` with its quotes, `true`, `[1, 2]`); every other client sends bare strings.
Both are legal: a value that is JSON means what the JSON says, any other means itself. `NaN` and `Infinity`, which
Python's parser would take, are not JSON and stay strings.
"""

import json
from collections.abc import Mapping
from typing import Any

RESERVED_PREFIX = "sagemaker_"
"""Hyperparameters that the SDKs use to talk to the training toolkit; scripts do not get them as arguments."""

SUBMIT_DIRECTORY = "sagemaker_submit_directory"
PROGRAM = "sagemaker_program"
LOG_LEVEL = "sagemaker_container_log_level"
REGION = "sagemaker_region"
DISTRIBUTION_INSTANCE_GROUPS = "sagemaker_distribution_instance_groups"


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def decode(value: str) -> Any:
    """The meaning of one value: its JSON value where it is JSON, else the string itself."""
    try:
        return json.loads(value, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return value


def decode_all(raw: Mapping[str, str]) -> dict[str, Any]:
    """All hyperparameters decoded, in the request's order."""
    return {key: decode(value) for key, value in raw.items()}


def raw_hyperparameters(request: Mapping[str, Any]) -> dict[str, str]:
    """The map as the request has it; empty where the request has none."""
    return dict(request.get("HyperParameters") or {})


def user_hyperparameters(raw: Mapping[str, str]) -> dict[str, Any]:
    """Decoded hyperparameters that are meant for the user's script."""
    return {key: decode(value) for key, value in raw.items() if not key.startswith(RESERVED_PREFIX)}


def framework_hyperparameters(raw: Mapping[str, str]) -> dict[str, Any]:
    """Decoded hyperparameters with the reserved prefix: what the SDK tells the toolkit."""
    return {key: decode(value) for key, value in raw.items() if key.startswith(RESERVED_PREFIX)}


def text(raw: Mapping[str, str], key: str) -> str | None:
    """A reserved hyperparameter that is a string, whether or not the client has JSON-encoded it."""
    value = raw.get(key)
    if value is None:
        return None
    decoded = decode(value)
    return decoded if isinstance(decoded, str) else value
