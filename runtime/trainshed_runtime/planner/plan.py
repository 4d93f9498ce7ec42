"""The plan: what each degree costs in memory, bytes and time, and which one to take.

Two answers are given and named. The rule of thumb sizes the partition group as AWS's does, one 8-device node of 40 GiB
devices per 3 B parameters, then the next power of two of nodes; it leaves four fifths of the memory to activations
and is the recommendation where no batch is given. With a batch, the smallest time among the degrees that fit decides.
"""

import math
from dataclasses import dataclass, field, replace

from trainshed_runtime.degrees import is_even, valid_degrees
from trainshed_runtime.planner.hardware import A100, Machine
from trainshed_runtime.planner.memory import USABLE, Memory, Settings, kept_parameters, model_states, rank_memory
from trainshed_runtime.planner.shape import Shape
from trainshed_runtime.planner.timing import Step, step_time
from trainshed_runtime.planner.traffic import Traffic, mics, step_traffic
from trainshed_runtime.topology import Topology

_PARAMETERS_PER_NODE = 3e9
_RULE_DEVICES = 8
_PLAIN = 1e9
"""Below so many parameters a model that fits one device is trained with plain data parallelism."""
_MOST_BATCH = 1 << 12
_LARGE_WORLD = 1024


@dataclass(frozen=True)
class Cluster:
    """`count` instances of a machine with so many processes on each, one per device."""

    machine: Machine
    count: int
    processes: int

    @property
    def topology(self) -> Topology:
        return Topology(self.count * self.processes, self.processes)


@dataclass(frozen=True)
class Choice:
    """What a degree means. `largest_batch`: the largest micro-batch (a power of two) that fits; 0: none does."""

    degree: int
    replicas: int
    memory: Memory
    fits: bool
    largest_batch: int
    traffic: Traffic
    step: Step | None
    even: bool


@dataclass(frozen=True)
class Plan:
    """All of it; `notes` are sentences on what was assumed and what to beware of."""

    shape: Shape
    cluster: Cluster
    settings: Settings
    accumulation: int
    utilisation: float
    states: int
    usable: int
    choices: list[Choice]
    rule: int
    asked: int | None
    recommended: int | None
    reason: str
    notes: list[str] = field(default_factory=list)

    @property
    def shown(self) -> Choice | None:
        """The choice to show in detail: the degree that was asked for, else the recommended one."""
        wanted = self.asked or self.recommended
        return next((choice for choice in self.choices if choice.degree == wanted), None)

    def samples_per_second(self, step: Step) -> tuple[float, float]:
        """(least, most), of the whole cluster."""
        samples = self.cluster.topology.world_size * self.settings.micro_batch * self.accumulation
        return samples / step.most, samples / step.least


def rule_of_thumb(parameters: int, cluster: Cluster) -> int:
    """The degree by the rule in the module's docstring, scaled by the devices' memory; a divisor of the world, or the
    whole world where the model asks for more."""
    machine, topology = cluster.machine, cluster.topology
    share = (topology.ranks_per_node / _RULE_DEVICES) * (machine.device.memory_bytes / A100.memory_bytes)
    nodes = math.ceil(parameters / (_PARAMETERS_PER_NODE * share))
    wanted = topology.ranks_per_node * (1 << max(0, nodes - 1).bit_length())
    whole = [degree for degree in valid_degrees(topology.world_size) if degree % topology.ranks_per_node == 0]
    return next((degree for degree in whole if degree >= wanted), topology.world_size)


def make_plan(
    shape: Shape,
    cluster: Cluster,
    settings: Settings,
    accumulation: int = 1,
    utilisation: float = 0.5,
    batch_given: bool = False,
    asked: int | None = None,
) -> Plan:
    """`utilisation`: the share of the device's peak rate that the kernels reach; `asked`: a valid degree to show."""
    usable = int(USABLE * cluster.machine.device.memory_bytes)
    choices = [
        _choice(shape, cluster, settings, degree, accumulation, utilisation, usable)
        for degree in valid_degrees(cluster.topology.world_size)
        if degree == asked or _listed(degree, cluster.topology)
    ]
    rule = rule_of_thumb(shape.parameters, cluster)
    recommended, reason = _recommend(shape, choices, rule, batch_given)
    return Plan(
        shape=shape,
        cluster=cluster,
        settings=settings,
        accumulation=accumulation,
        utilisation=utilisation,
        states=model_states(shape.parameters, settings),
        usable=usable,
        choices=choices,
        rule=rule,
        asked=asked,
        recommended=recommended,
        reason=reason,
        notes=_notes(shape, cluster, settings, choices, asked or recommended),
    )


def _listed(degree: int, topology: Topology) -> bool:
    """In a large world only groups that lie evenly on nodes are looked at; others are never the best."""
    return topology.world_size <= _LARGE_WORLD or is_even(degree, topology.ranks_per_node)


def _choice(
    shape: Shape,
    cluster: Cluster,
    settings: Settings,
    degree: int,
    accumulation: int,
    utilisation: float,
    usable: int,
) -> Choice:
    topology, device = cluster.topology, cluster.machine.device
    memory = rank_memory(shape, degree, settings)
    kept = kept_parameters(shape, settings.max_live) / shape.parameters
    traffic = step_traffic(
        replace(mics(degree), kept=kept),
        topology,
        accumulation,
        (settings.width if degree > 1 else 0) * shape.parameters,
        settings.reduce_width * shape.parameters,
    )
    rate = device.single if settings.precision == "fp32" else device.half
    step = None
    if rate:
        operations = accumulation * shape.flops(settings.micro_batch, settings.checkpointing > 0)
        step = step_time(traffic, operations / (rate * utilisation), cluster.machine.link, device.link)
    return Choice(
        degree=degree,
        replicas=topology.world_size // degree,
        memory=memory,
        fits=memory.total <= usable,
        largest_batch=_largest_batch(shape, degree, settings, usable),
        traffic=traffic,
        step=step,
        even=is_even(degree, topology.ranks_per_node),
    )


def _largest_batch(shape: Shape, degree: int, settings: Settings, usable: int) -> int:
    fitting, batch = 0, 1
    while batch <= _MOST_BATCH:
        tried = Settings(**{**vars(settings), "micro_batch": batch})
        if rank_memory(shape, degree, tried).total > usable:
            break
        fitting, batch = batch, batch * 2
    return fitting


def _recommend(shape: Shape, choices: list[Choice], rule: int, batch_given: bool) -> tuple[int | None, str]:
    fitting = [choice for choice in choices if choice.fits]
    if not fitting:
        return None, "no degree fits: the model needs more instances, more memory, checkpointing or offload"
    if fitting[0].degree == 1 and shape.parameters < _PLAIN:
        return 1, "the model fits one device and has less than 1 B parameters: plain data parallelism is enough"
    if not batch_given:
        at_rule = [choice for choice in fitting if choice.degree >= rule]
        if at_rule and at_rule[0].degree == rule:
            return rule, "the rule of thumb, which leaves most of the memory to activations; give a batch to tighten it"
        if at_rule:
            return at_rule[0].degree, f"the rule of thumb's {rule} does not fit with these settings; this is the next"
        return fitting[-1].degree, f"the rule of thumb asks for {rule}, more than fits this cluster"
    even = [choice for choice in fitting if choice.even] or fitting
    if all(choice.step is not None for choice in even):
        best = min(even, key=lambda choice: (_cost(choice), choice.degree))
        return best.degree, "the least time among the degrees that fit with this batch"
    return even[0].degree, "the smallest that fits with this batch, which communicates least"


def _cost(choice: Choice) -> float:
    return choice.step.most if choice.step is not None else math.inf


def _notes(shape: Shape, cluster: Cluster, settings: Settings, choices: list[Choice], shown: int | None) -> list[str]:
    notes = []
    if shape.assumed:
        sizes = ", ".join(f"{name} {getattr(shape, name)}" for name in shape.assumed)
        notes.append(f"Assumed, since not given: {sizes}.")
    device = cluster.machine.device
    if device.half is None and device.single is None:
        notes.append(f"No rate is known of {cluster.machine.name}, so no time is predicted; give flops and both links.")
    if settings.offload and settings.checkpointing < 1:
        notes.append("Offload has no effect without checkpointing, since only checkpointed activations are offloaded.")
    chosen = next((choice for choice in choices if choice.degree == shown), None)
    if chosen is not None and not chosen.even:
        notes.append(f"Groups of {chosen.degree} ranks straddle nodes unevenly and cost more bytes than the even ones.")
    if chosen is not None and chosen.memory.host:
        notes.append(
            f"Offloaded activations take {chosen.memory.host * cluster.processes / 1e9:.1f} GB of each host's memory."
        )
    if chosen is not None and settings.precision == "bf16" and not settings.fp32_reduce:
        notes.append("Gradients are summed in bf16: the error grows with the number of micro-steps.")
    return notes
