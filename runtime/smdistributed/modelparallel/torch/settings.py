"""The configuration: every key that the estimator's `parameters` and `smp.init(cfg)` may hold.

Invariant: each key acts, or has nothing to act on here and is checked all the same (`idle`), or is refused with the
reason. Values given by the launcher (SM_HP_MP_PARAMETERS) stand above those of `smp.init`.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

VARIABLE = "SM_HP_MP_PARAMETERS"


class SettingsError(ValueError):
    """A key or a value that cannot be acted on; says why and what to write instead."""


@dataclass(frozen=True)
class _Key:
    default: Any
    read: Callable[[str, Any], Any]
    idle: str = ""
    """Why it changes nothing here; empty where it acts."""


def _flag(name: str, value: Any) -> bool:
    if isinstance(value, bool) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise SettingsError(f"{name} is {value!r}; it must be True or False")


def _whole(least: int, none: bool = False) -> Callable[[str, Any], Any]:
    def read(name: str, value: Any) -> Any:
        if none and value is None:
            return None
        try:
            number = float(value) if not isinstance(value, bool) else None
        except (TypeError, ValueError):
            number = None
        if number is None or number != int(number) or number < least:
            raise SettingsError(f"{name} is {value!r}; it must be a whole number of at least {least}")
        return int(number)

    return read


def _number(low: float, high: float) -> Callable[[str, Any], float]:
    def read(name: str, value: Any) -> float:
        try:
            number = float(value) if not isinstance(value, bool) else float("nan")
        except (TypeError, ValueError):
            number = float("nan")
        if not low <= number <= high:
            raise SettingsError(f"{name} is {value!r}; it must be a number from {low:g} to {high:g}")
        return number

    return read


def _word(*words: str) -> Callable[[str, Any], str]:
    def read(name: str, value: Any) -> str:
        if value not in words:
            raise SettingsError(f"{name} is {value!r}; it must be one of {', '.join(words)}")
        return str(value)

    return read


def _placement(name: str, value: Any) -> str:
    if value in ("cluster", "spread") or (isinstance(value, str) and sorted(value) == ["D", "P", "T"]):
        return str(value)
    raise SettingsError(f"{name} is {value!r}; it must be cluster, spread, or an order of the letters D, P and T")


_ONE_STAGE = "there is one pipeline stage"
KEYS: dict[str, _Key] = {
    "pipeline_parallel_degree": _Key(1, _whole(1)),
    "tensor_parallel_degree": _Key(1, _whole(1)),
    "microbatches": _Key(1, _whole(1)),
    "active_microbatches": _Key(None, _whole(1, none=True), _ONE_STAGE),
    "pipeline": _Key("interleaved", _word("interleaved", "simple", "_only_forward"), _ONE_STAGE),
    "optimize": _Key("memory", _word("memory", "speed"), _ONE_STAGE),
    "placement_strategy": _Key("cluster", _placement, "one tensor and one pipeline rank leave one order of ranks"),
    "auto_partition": _Key(True, _flag, _ONE_STAGE),
    "default_partition": _Key(0, _whole(0, none=True)),
    "memory_weight": _Key(0.8, _number(0, 1), _ONE_STAGE),
    "contiguous": _Key(True, _flag, _ONE_STAGE),
    "deterministic_server": _Key(False, _flag, _ONE_STAGE),
    "load_partition": _Key(False, _flag, _ONE_STAGE),
    "skip_tracing": _Key(False, _flag, "nothing is traced"),
    "fast_mode": _Key(False, _flag, _ONE_STAGE),
    "static_mode": _Key(False, _flag, _ONE_STAGE),
    "ddp": _Key(False, _flag),
    "horovod": _Key(False, _flag),
    "ddp_port": _Key(None, _whole(1, none=True)),
    "ddp_dist_backend": _Key("auto", _word("auto", "nccl", "gloo", "smddp")),
    "fp16": _Key(False, _flag),
    "fp16_params": _Key(False, _flag),
    "bf16": _Key(False, _flag),
    "shard_optimizer_state": _Key(False, _flag),
    "prescaled_batch": _Key(False, _flag, "one tensor rank reads a batch, whether prescaled or not"),
    "delayed_parameter_initialization": _Key(False, _flag),
    "offload_activations": _Key(False, _flag),
    "activation_loading_horizon": _Key(4, _whole(1)),
    "sharded_data_parallel_degree": _Key(1, _whole(1)),
    "sdp_reduce_bucket_size": _Key(500_000_000, _whole(1)),
    "sdp_param_persistence_threshold": _Key(1_000_000, _whole(0)),
    "sdp_max_live_parameters": _Key(1_000_000_000, _whole(0)),
    "sdp_hierarchical_allgather": _Key(True, _flag),
    "sdp_gradient_clipping": _Key(1.0, _number(0, float("inf"))),
}
_OLD_NAMES = {"partitions": "pipeline_parallel_degree"}


@dataclass(frozen=True)
class Settings:
    """Checked values; `settings["microbatches"]`. `notices` say what was given and changes nothing here."""

    values: Mapping[str, Any]
    notices: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    @property
    def sharded(self) -> bool:
        """Whether sharded data parallelism was asked for: clipping inside `step` comes with it."""
        return int(self["sharded_data_parallel_degree"]) > 1

    @property
    def half(self) -> str | None:
        """`fp16`, `bf16` or None."""
        if self["fp16"] or self["fp16_params"]:
            return "fp16"
        return "bf16" if self["bf16"] else None


def read_settings(given: Mapping[str, Any] | None, environment: Mapping[str, str] | None = None) -> Settings:
    """The settings of `smp.init(given)` under the launcher's. SettingsError for what cannot be acted on."""
    merged = {**_renamed(given or {}), **_renamed(_launched(os.environ if environment is None else environment))}
    values = {name: key.default for name, key in KEYS.items()}
    notices = []
    for name, value in merged.items():
        key = KEYS.get(name)
        if key is None:
            close = difflib.get_close_matches(name, KEYS, n=1)
            raise SettingsError(f"{name!r} is no setting of smp" + (f"; did you mean {close[0]!r}?" if close else ""))
        values[name] = key.read(name, value)
        if key.idle and values[name] != key.default:
            notices.append(f"{name}={values[name]} changes nothing: {key.idle}")
    _refuse(values, merged)
    return Settings(values, tuple(notices))


def _renamed(given: Mapping[str, Any]) -> dict[str, Any]:
    return {_OLD_NAMES.get(name, name): value for name, value in given.items()}


def _launched(environment: Mapping[str, str]) -> dict[str, Any]:
    text = environment.get(VARIABLE, "").strip()
    if not text:
        return {}
    try:
        found = json.loads(text)
    except ValueError as error:
        raise SettingsError(f"{VARIABLE} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise SettingsError(f"{VARIABLE} must hold a JSON object, not {text[:80]}")
    return found


def _refuse(values: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    for name, what in (("tensor_parallel_degree", "tensor"), ("pipeline_parallel_degree", "pipeline")):
        if values[name] > 1:
            raise SettingsError(
                f"{name} is {values[name]}, but this library has no {what} parallelism. Set it to 1 and let "
                "sharded_data_parallel_degree divide the model's states over more ranks."
            )
    if values["horovod"]:
        raise SettingsError("horovod is True, but process groups are torch's here; set ddp to True instead")
    halves = [name for name in ("fp16", "fp16_params", "bf16") if values[name]]
    if "bf16" in halves and len(halves) > 1:
        raise SettingsError(f"{' and '.join(halves)} are both True; choose one")
    if values["shard_optimizer_state"]:
        reason = "already shards it" if values["sharded_data_parallel_degree"] > 1 else "does that and more"
        raise SettingsError(
            f"shard_optimizer_state is True; leave it out: sharded_data_parallel_degree (2 or more) {reason}"
        )
    if not values["auto_partition"] and given.get("default_partition", 0) is None:
        raise SettingsError("auto_partition is False, so default_partition must be given: 0, the one partition")
    if values["default_partition"] not in (0, None):
        raise SettingsError(f"default_partition is {values['default_partition']}; there is one partition, 0")
