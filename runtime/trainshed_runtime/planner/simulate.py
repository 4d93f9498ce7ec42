"""The model at the scale of hundreds of devices, held against what was published and what was measured.

Its only inputs are published link speeds and peak arithmetic rates; nothing is fitted, so its figures are bounds: at
least (all communication hidden behind arithmetic) and at most (none hidden). What a publication does not state (the
micro-batch, the number of micro-steps) is varied over a stated range, and the prediction is the range that results.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trainshed_runtime.planner.hardware import MACHINES, Machine
from trainshed_runtime.planner.shape import Shape, shape_of
from trainshed_runtime.planner.timing import Step, step_time
from trainshed_runtime.planner.traffic import Scheme, full_shard, mics, step_traffic
from trainshed_runtime.topology import Topology

MICRO_BATCHES = (1, 2, 4, 8)
ACCUMULATIONS = (1, 4, 16)
_HALF = 2
"""Bytes of an element on the wire: both sides of each comparison send 16-bit parameters and gradients."""


@dataclass(frozen=True)
class Comparison:
    """`least` and `most` of the prediction over what is not published, in the unit of `published`."""

    what: str
    source: str
    unit: str
    published: float
    least: float
    most: float

    @property
    def within(self) -> bool:
        return self.least <= self.published <= self.most


@dataclass(frozen=True)
class ScalePoint:
    """One cluster size: whole tokens per second when nothing overlaps (`least`) and when all does, and the efficiency
    per device against the smallest size, for each scheme by name."""

    nodes: int
    devices: int
    tokens: dict[str, tuple[float, float]]
    efficiency: dict[str, tuple[float, float]]


def published() -> list[Comparison]:
    """Each published figure with the model's range for it."""
    p4d = MACHINES["ml.p4d.24xlarge"]
    thirty = shape_of(30_000_000_000, 2048, hidden=7168, layers=48, heads=64)
    ten = shape_of(10_000_000_000, 512)
    hundred = shape_of(100_000_000_000, 2048)
    mics_paper, blog = "MiCS, arXiv 2205.00119", "AWS, sharded data parallelism"
    return [
        _over(
            "weak scaling, 100 B, 128 → 512 devices, degree 128",
            mics_paper,
            "%",
            99.4,
            (100 * value for value in _each(hundred, p4d, _weak(16, 64, mics(128)))),
        ),
        _over(
            "gain over ZeRO-3, 30 B, sequence 2048, 256 devices, degree 128",
            blog,
            "%",
            39.7,
            (100 * (value - 1) for value in _each(thirty, p4d, _against(32, mics(128), full_shard(256)))),
        ),
        _over(
            "gain over FSDP, 10 B, sequence 512, 128 devices, degree 32",
            blog,
            "%",
            13.9,
            (100 * (value - 1) for value in _each(ten, p4d, _against(16, mics(32), full_shard(128)))),
        ),
        _over(
            "per device, 30 B, sequence 2048, 256 devices, degree 128",
            blog,
            "TFLOP/s",
            141.0,
            _each(thirty, p4d, _rate(32, mics(128))),
        ),
        _over(
            "samples per second, 30 B, sequence 2048, 256 devices, degree 128",
            blog,
            "/s",
            73.52,
            _each(thirty, p4d, _samples(32, mics(128))),
        ),
    ]


def scaling(
    shape: Shape, machine: Machine, degree: int, nodes: Iterable[int], batch: int, steps: int
) -> list[ScalePoint]:
    """Weak scaling of two-hop sharding at `degree` and of full sharding over these numbers of nodes.

    Sizes whose world the degree does not divide are left out. ValueError where the machine's rates are unknown.
    """
    points: list[ScalePoint] = []
    for count in nodes:
        world = count * machine.devices
        if world % degree:
            continue
        tokens, efficiency = {}, {}
        for name, scheme in (("mics", mics(degree)), ("full shard", full_shard(world))):
            step = _step(shape, machine, count, scheme, batch, steps)
            done = world * batch * steps * shape.sequence
            tokens[name] = (done / step.most, done / step.least)
            first = points[0].tokens[name] if points else tokens[name]
            devices = points[0].devices if points else world
            efficiency[name] = (
                tokens[name][0] / world * devices / first[0],
                tokens[name][1] / world * devices / first[1],
            )
        points.append(ScalePoint(count, world, tokens, efficiency))
    return points


Measure = Callable[[Shape, Machine, int, int], Iterable[float]]


def _each(shape: Shape, machine: Machine, measure: Measure) -> Iterable[float]:
    for batch in MICRO_BATCHES:
        for steps in ACCUMULATIONS:
            yield from measure(shape, machine, batch, steps)


def _weak(small: int, large: int, scheme: Scheme) -> Measure:
    def measure(shape: Shape, machine: Machine, batch: int, steps: int) -> Iterable[float]:
        one = _step(shape, machine, small, scheme, batch, steps)
        many = _step(shape, machine, large, scheme, batch, steps)
        yield one.least / many.least
        yield one.most / many.most

    return measure


def _against(nodes: int, ours: Scheme, theirs: Scheme) -> Measure:
    def measure(shape: Shape, machine: Machine, batch: int, steps: int) -> Iterable[float]:
        one = _step(shape, machine, nodes, ours, batch, steps)
        other = _step(shape, machine, nodes, theirs, batch, steps)
        yield other.least / one.least
        yield other.most / one.most

    return measure


def _rate(nodes: int, scheme: Scheme) -> Measure:
    def measure(shape: Shape, machine: Machine, batch: int, steps: int) -> Iterable[float]:
        step = _step(shape, machine, nodes, scheme, batch, steps)
        operations = steps * shape.flops(batch, recompute=True) / 1e12
        yield operations / step.most
        yield operations / step.least

    return measure


def _samples(nodes: int, scheme: Scheme) -> Measure:
    def measure(shape: Shape, machine: Machine, batch: int, steps: int) -> Iterable[float]:
        step = _step(shape, machine, nodes, scheme, batch, steps)
        done = nodes * machine.devices * batch * steps
        yield done / step.most
        yield done / step.least

    return measure


def _step(shape: Shape, machine: Machine, nodes: int, scheme: Scheme, batch: int, steps: int) -> Step:
    topology = Topology(nodes * machine.devices, machine.devices)
    traffic = step_traffic(scheme, topology, steps, _HALF * shape.parameters)
    if not machine.device.half:
        raise ValueError(f"no arithmetic rate is known of {machine.name}")
    compute = steps * shape.flops(batch, recompute=True) / machine.device.half
    step = step_time(traffic, compute, machine.link, machine.device.link)
    if step is None:
        raise ValueError(f"a link of {machine.name} is unknown")
    return step


def _over(what: str, source: str, unit: str, figure: float, values: Iterable[float]) -> Comparison:
    found = list(values)
    return Comparison(what, source, unit, figure, min(found), max(found))
