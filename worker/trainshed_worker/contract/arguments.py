"""The script's argument words: `--key value` per user hyperparameter, sorted by key, as the public toolkit gives them.

Each value is exactly one word, whatever blanks or signs it has; a boolean is `True` or `False` as a word of its own.
"""

from collections.abc import Mapping
from typing import Any

from trainshed_worker.contract.hyperparameters import user_hyperparameters


def argument_value(value: Any) -> str:
    """One decoded value as a word. A map becomes `k=v,k=v` in key order (what `mp_parameters` needs)."""
    if isinstance(value, Mapping):
        return ",".join(f"{key}={value[key]}" for key in sorted(value))
    return str(value)


def argument_words(values: Mapping[str, Any]) -> list[str]:
    """Words for decoded values: `-k` for a one-letter key, else `--key`, each followed by one word of value."""
    words: list[str] = []
    for key in sorted(values):
        words.append(f"-{key}" if len(key) == 1 else f"--{key}")
        words.append(argument_value(values[key]))
    return words


def script_arguments(raw: Mapping[str, str]) -> list[str]:
    """Words for the user's script, from the request's hyperparameters as they are."""
    return argument_words(user_hyperparameters(raw))
