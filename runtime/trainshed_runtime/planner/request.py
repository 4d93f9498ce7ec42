"""What a plan is asked for, as the command line and REST take it: one set of names, checked in one place.

Invariant: an unknown member, a bad value or one that contradicts another is a PlanError that names the member.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from trainshed_runtime.degrees import InvalidDegree, check_degree
from trainshed_runtime.planner import sizes
from trainshed_runtime.planner.hardware import Machine, machine, plain_machine
from trainshed_runtime.planner.memory import OPTIMIZERS, Settings
from trainshed_runtime.planner.plan import Cluster, Plan, make_plan
from trainshed_runtime.planner.shape import shape_of

_MOST = 16_384


class PlanError(ValueError):
    """`str` says which member is wrong and what it may be."""


@dataclass(frozen=True)
class InstanceFacts:
    """What an installation knows of an instance type."""

    memory_bytes: int
    accelerators: int


@dataclass(frozen=True)
class Request:
    """Members of a request; sizes and rates as numbers or as text with a unit. See docs/runtime.md for each."""

    params: str | float
    instance: str
    count: int = 1
    processes: int | None = None
    degree: int | None = None
    sequence: int = 2048
    batch: int | None = None
    accumulation: int = 1
    precision: str = "bf16"
    optimizer: str = "adam"
    checkpointing: str = "each"
    offload: bool = False
    horizon: int = 4
    flash: bool = False
    live: str | float = 1_000_000_000
    hidden: int | None = None
    layers: int | None = None
    heads: int | None = None
    vocabulary: int | None = None
    memory: str | float | None = None
    flops: str | float | None = None
    nodeLink: str | float | None = None
    deviceLink: str | float | None = None
    utilisation: float = 0.5


MEMBERS = tuple(field.name for field in fields(Request))
_NEEDED = ("params", "instance")
_FLAGS = ("offload", "flash")
_COUNTS = (
    "count",
    "processes",
    "degree",
    "sequence",
    "batch",
    "accumulation",
    "horizon",
    "hidden",
    "layers",
    "heads",
    "vocabulary",
)
_LIMITS = {"sequence": 1 << 20, "vocabulary": 1 << 24, "accumulation": 1 << 20, "batch": 1 << 12}


def parse_request(content: Mapping[str, Any]) -> Request:
    """PlanError for the first member that is wrong."""
    unknown = sorted(set(content) - set(MEMBERS))
    if unknown:
        raise PlanError(f"{unknown[0]!r} is not known; known are {', '.join(MEMBERS)}")
    given = {name: value for name, value in content.items() if value is not None}
    for name in _NEEDED:
        if name not in given:
            raise PlanError(f"{name} is needed")
    for name in _COUNTS:
        _check_count(name, given.get(name, 1))
    _check_choice("precision", given.get("precision", "bf16"), ("bf16", "fp16", "fp32"))
    _check_choice("optimizer", given.get("optimizer", "adam"), tuple(OPTIMIZERS))
    for name in _FLAGS:
        if not isinstance(given.get(name, False), bool):
            raise PlanError(f"{name} is true or false, not {given[name]!r}")
    if not isinstance(given["instance"], str):
        raise PlanError(f"instance is the name of an instance type, not {given['instance']!r}")
    used = given.get("utilisation", 0.5)
    if isinstance(used, bool) or not isinstance(used, (int, float)) or not 0 < used <= 1:
        raise PlanError(f"utilisation is a share of the peak rate above 0, at most 1, not {used!r}")
    return Request(**given)


def from_text(content: Mapping[str, str]) -> Request:
    """A request whose members all came as text, as query parameters do. PlanError."""
    parsed: dict[str, Any] = {}
    for name, text in content.items():
        if name in _COUNTS:
            if not (text.isascii() and text.isdecimal()):
                raise PlanError(f"{name} is a whole number, not {text[:100]!r}")
            parsed[name] = int(text[:20])
        elif name in _FLAGS:
            if text not in ("true", "false"):
                raise PlanError(f"{name} is true or false, not {text[:100]!r}")
            parsed[name] = text == "true"
        elif name == "utilisation":
            parsed[name] = _read(name, text, float)
        else:
            parsed[name] = text
    return parse_request(parsed)


def answer(request: Request, facts: InstanceFacts | None = None) -> Plan:
    """The plan. `facts`: of an instance type that the planner's own table lacks. PlanError."""
    settings = Settings(
        precision=request.precision,  # type: ignore[arg-type]
        optimizer=request.optimizer,
        micro_batch=request.batch or 1,
        checkpointing=checkpoint_layers(request.checkpointing, request.layers),
        offload=request.offload,
        horizon=request.horizon,
        flash_attention=request.flash,
        max_live=_read("live", request.live, sizes.count),
    )
    parameters = _read("params", request.params, sizes.count)
    if parameters < 1:
        raise PlanError("params is at least 1")
    if request.count * (request.processes or 8) > _MOST:
        raise PlanError(f"count × processes is at most {_MOST} ranks")
    try:
        shape = shape_of(
            parameters, request.sequence, request.hidden, request.layers, request.heads, request.vocabulary
        )
    except ValueError as error:
        raise PlanError(str(error)) from None
    cluster = _cluster(request, facts)
    if request.degree is not None:
        topology = cluster.topology
        world = f"{cluster.count} × {request.instance} with {cluster.processes} processes each"
        try:
            check_degree(request.degree, topology.world_size, topology.ranks_per_node, world)
        except InvalidDegree as error:
            raise PlanError(str(error)) from None
    return make_plan(
        shape,
        cluster,
        settings,
        request.accumulation,
        float(request.utilisation),
        request.batch is not None,
        request.degree,
    )


def checkpoint_layers(word: str, layers: int | None = None) -> int:
    """Layers per checkpoint: `none` 0, `each` 1, `contiguous` 1, `group_N` N."""
    if word in ("none", "each", "contiguous"):
        return 0 if word == "none" else 1
    number = word.removeprefix("group_")
    if word.startswith("group_") and number.isdecimal() and 1 <= int(number) <= (layers or 1 << 16):
        return int(number)
    raise PlanError(f"checkpointing is none, each, contiguous or group_N (layers per checkpoint), not {word!r}")


def _cluster(request: Request, facts: InstanceFacts | None) -> Cluster:
    known = machine(request.instance)
    if known is None:
        known = _machine_of(request, facts)
    processes = request.processes or known.devices
    device = known.device
    if processes != known.devices and device.half is not None and processes > known.devices:
        raise PlanError(f"processes is at most {known.devices} on {request.instance}, one per device, not {processes}")
    flops = _read("flops", request.flops, sizes.rate) if request.flops is not None else None
    device = replace(
        device,
        memory_bytes=_read("memory", request.memory, sizes.byte_count) if request.memory else device.memory_bytes,
        half=flops or device.half,
        single=flops or device.single,
        link=_read("deviceLink", request.deviceLink, sizes.link) if request.deviceLink else device.link,
    )
    network = _read("nodeLink", request.nodeLink, sizes.link) if request.nodeLink else known.link
    return Cluster(replace(known, device=device, link=network), request.count, processes)


def _machine_of(request: Request, facts: InstanceFacts | None) -> Machine:
    """A machine that is not in the table, from the installation's facts and from what the request gives."""
    processes = request.processes or max(1, facts.accelerators if facts else 1)
    if facts is not None and not facts.accelerators:
        return plain_machine(request.instance, facts.memory_bytes, processes)
    if request.memory is None:
        known_here = "has accelerators whose memory is not known here" if facts else "is not known"
        raise PlanError(f"instance {request.instance!r} {known_here}; give memory (per device), flops and both links")
    memory = _read("memory", request.memory, sizes.byte_count)
    return plain_machine(request.instance, memory * processes, processes)


def _read(name: str, value: Any, parse: Callable[[Any], Any]) -> Any:
    try:
        return parse(value)
    except (ValueError, AttributeError, TypeError) as error:
        raise PlanError(f"{name}: {error}") from None


def _check_count(name: str, value: object) -> None:
    limit = _LIMITS.get(name, _MOST)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= limit:
        raise PlanError(f"{name} is a whole number from 1 to {limit}, not {value!r}")


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise PlanError(f"{name} is one of {', '.join(choices)}, not {value!r}")
