"""Speed and bytes of sharded training and of collectives over limited links (`make bench-runtime`).

    python -m benchmarks.runtime [--part training … mlp] [--rates 1000 200] [--repetitions 5]
                                 [--modes fsdp … zero3] [--json FILE]        a try: --repetitions 1 --rates 200

Everything is measured in one run on one machine: nodes are network namespaces whose links are limited in both
directions (benchmarks/netns.py; needs root and iproute2), ranks are processes on them. What is compared takes turns:
each repetition has every mode once, so that other work on the machine meets all alike. Times are medians over the
repetitions of the slowest rank's; `spread` is (largest - smallest) / median. Bytes are those that the busiest node's
interface sent, all headers and acknowledgements included, in units of M, the model's or the tensor's bytes; the floor
is what a ring or a hierarchy has to send.

    training     a GPT of 14 M parameters in float32, 2 nodes of 2 ranks, 4 micro-steps of 2 × 64 tokens a rank, AdamW
    collectives  all-reduce of 64 MB over gloo and over smddp: 2 × 2, 2 × 4 and 4 × 2 ranks, 200 Mbit/s
    groups       gather and scatter of 55 MB in one group over 2 nodes of 2: gloo flat, our ring, hierarchical
    mlp          a seven-layer MLP with DDP on 8 nodes of one rank against one; 10 and 20 ms a layer are emulated
    scaling      1, 2 and 4 nodes of 2 with compute emulated by waiting (40 ms forward and 80 ms backward a block)
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.netns import CannotRun, Network, check
from benchmarks.runtime_cluster import Measured, RankFailed, Ranks
from benchmarks.runtime_deepspeed import NotInstallable, python_with_deepspeed
from benchmarks.runtime_shape import Shape

PARTS = ("training", "collectives", "groups", "scaling", "mlp")
MODES = ("fsdp", "fsdp_ring", "hybrid", "hybrid_2hop", "ddp", "ddp_smddp", "ours", "zero3")
ACCUMULATION = 4
SCALING_MODES = ("fsdp", "hybrid", "hybrid_2hop", "ddp", "ours")
SCALING_ACCUMULATIONS = (4, 16)
MLP = Shape(width=512, layers=7, batch=32, forward_ms=10, mlp=True)
SCALING = Shape(sequence=32, batch=1, forward_ms=40)


@dataclass
class Series:
    """The repetitions of one thing under one limit."""

    part: str
    name: str
    nodes: int
    per_node: int
    mbit: int
    bytes_of_m: float
    floor: float | None
    tokens: int = 0
    note: str = ""
    measured: list[Measured] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return statistics.median(one.seconds for one in self.measured)

    @property
    def spread(self) -> float:
        every = [one.seconds for one in self.measured]
        return (max(every) - min(every)) / self.seconds

    @property
    def sent(self) -> float:
        """Of M."""
        return statistics.median(one.sent for one in self.measured) / self.bytes_of_m

    @property
    def cpu(self) -> float:
        """Processor seconds of all ranks."""
        return statistics.median(one.cpu for one in self.measured)


def floor(mode: str, nodes: int, per_node: int, accumulation: int, degree_nodes: int = 1) -> float | None:
    """Bytes that a node has to send in one optimizer step, in units of the model's, by the mode's own scheme.

    A flat ring over n ranks sends (n-1)/n for a gather or a scatter, N nodes as a hierarchy (N-1)/N.
    """
    world = nodes * per_node
    ring, tree = (world - 1) / world, (nodes - 1) / nodes
    if nodes == 1:
        return 0.0
    return {
        "fsdp": accumulation * 4 * ring,  # gloo's reduce-scatter costs an all-reduce
        "fsdp_ring": accumulation * 3 * ring,
        "zero3": accumulation * 4 * ring,
        "hybrid": accumulation * 2 * tree,
        "hybrid_2hop": 2 * tree,
        "ddp": 2 * ring,
        "ddp_smddp": 2 * tree,
        "ours": 2 * tree,
    }.get(mode)


class Bench:
    """Runs parts and keeps what they measured."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.series: list[Series] = []
        self.remarks: list[str] = []

    def run(self) -> None:
        parts: dict[str, Callable[[], None]] = {
            "training": self.training,
            "collectives": self.collectives,
            "groups": self.one_group,
            "scaling": self.scaling,
            "mlp": self.mlp,
        }
        for part in self.options.part:
            say(f"{part} …")
            parts[part]()
            self.print_part(part)

    def training(self) -> None:
        shape = Shape()
        modes = [mode for mode in self.options.modes if mode != "zero3"]
        with ExitStack() as stack:
            network = stack.enter_context(Network(2))
            ranks = stack.enter_context(Ranks(network, 2))
            runs = {mode: ranks for mode in modes}
            if "zero3" in self.options.modes and (python := self._deepspeed()) is not None:
                runs["zero3"] = stack.enter_context(Ranks(network, 2, python, port=29600))
            built: dict[str, Measured] = {}
            for mode, used in runs.items():
                built[mode] = used.order(do="build", mode=mode, shape=asdict(shape), accumulation=ACCUMULATION)
            losses = {mode: round(one.value, 4) for mode, one in built.items()}
            if len(set(losses.values())) > 1:
                self.remarks.append(f"the modes' first losses differ: {losses}")
            tokens = ranks.world * ACCUMULATION * shape.batch * shape.sequence
            self._turns(
                "training",
                network,
                [
                    Series("training", mode, 2, 2, mbit, size_of(shape), floor(mode, 2, 2, ACCUMULATION), tokens)
                    for mbit in self.options.rates
                    for mode in runs
                ],
                lambda series: runs[series.name].order(do="step", mode=series.name),
            )

    def collectives(self) -> None:
        size = 64
        for nodes, per_node in ((2, 2), (2, 4), (4, 2)):
            with Network(nodes) as network, Ranks(network, per_node) as ranks:
                ring, tree = 2 * (1 - 1 / ranks.world), 2 * (1 - 1 / nodes)
                series = [
                    Series("collectives", by, nodes, per_node, 200, size * 1e6, lowest, note="all-reduce")
                    for by, lowest in (("gloo", ring), ("smddp", tree))
                ]

                def measure(one: Series, ranks: Ranks = ranks) -> Measured:
                    return ranks.order(do="collective", what="all_reduce", by=one.name, mbytes=size, group=ranks.world)

                for one in series:
                    measure(one)
                self._turns("collectives", network, series, measure)

    def one_group(self) -> None:
        size = 55
        with Network(2) as network, Ranks(network, 2) as ranks:
            lowest = {"gloo": 3 * 0.75, "ring": 2 * 0.75, "hierarchical": 2 * 0.5}
            series = [
                Series("groups", by, 2, 2, 200, size * 1e6, lowest[by], note="gather and scatter") for by in lowest
            ]

            def measure(one: Series) -> Measured:
                return ranks.order(do="collective", what="gather_and_scatter", by=one.name, mbytes=size, group=4)

            for one in series:
                measure(one)
            self._turns("groups", network, series, measure)

    def scaling(self) -> None:
        modes = [mode for mode in SCALING_MODES if mode in self.options.modes]
        for nodes in (1, 2, 4):
            with Network(nodes) as network, Ranks(network, 2) as ranks:
                for accumulation in SCALING_ACCUMULATIONS:
                    for mode in modes:
                        ranks.order(do="build", mode=mode, shape=asdict(SCALING), accumulation=accumulation)
                    tokens = ranks.world * accumulation * SCALING.batch * SCALING.sequence
                    series = [
                        Series(
                            *("scaling", mode, nodes, 2, 1000, size_of(SCALING)),
                            floor(mode, nodes, 2, accumulation),
                            tokens,
                            f"accumulation {accumulation}",
                        )
                        for mode in modes
                    ]
                    self._turns(
                        "scaling", network, series, lambda one, ranks=ranks: ranks.order(do="step", mode=one.name)
                    )  # type: ignore[misc]
                    for mode in modes:
                        ranks.order(do="drop", mode=mode)

    def mlp(self) -> None:
        modes = ("ddp", "ddp_smddp")
        for nodes in (1, 8):
            with Network(nodes) as network, Ranks(network, 1) as ranks:
                for mode in modes:
                    ranks.order(do="build", mode=mode, shape=asdict(MLP), accumulation=1)
                size, rows = size_of(MLP), nodes * MLP.batch
                series = [Series("mlp", mode, nodes, 1, 1000, size, floor(mode, nodes, 1, 1), rows) for mode in modes]
                self._turns("mlp", network, series, lambda one, ranks=ranks: ranks.order(do="step", mode=one.name))  # type: ignore[misc]

    def _turns(
        self, part: str, network: Network, series: Sequence[Series], measure: Callable[[Series], Measured]
    ) -> None:
        self.series.extend(series)
        for mbit in dict.fromkeys(one.mbit for one in series):
            network.limit(mbit)
            for repetition in range(self.options.repetitions):
                for one in series:
                    if one.mbit == mbit:
                        one.measured.append(measure(one))
                        say(f"  {part} {mbit} Mbit/s, {repetition + 1}: {one.name} {one.measured[-1].seconds:.2f} s")
        network.limit(0)

    def _deepspeed(self) -> str | None:
        try:
            return str(python_with_deepspeed())
        except NotInstallable as error:
            self.remarks.append(f"no zero3: DeepSpeed cannot be installed here: {error}")
            return None

    def print_part(self, part: str) -> None:
        print(f"\n{part}  (load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores)")
        for line in table(self.series, part):
            print(line)
        for remark in self.remarks:
            print(f"note: {remark}")
        sys.stdout.flush()


def table(every: Iterable[Series], part: str) -> list[str]:
    """One line for each series, and how much quicker the part's subject is than each peer under the same limit."""
    mine = [one for one in every if one.part == part and one.measured]
    subject = {"training": "ours", "collectives": "smddp", "groups": "hierarchical"}.get(part, "ours")
    lines = [
        f"{'Mbit/s':>6} {'nodes':>7} {'':<22} {'s':>8} {'spread':>7} {'tok/s':>7} {'cpu s':>7} {'sent/M':>8} "
        f"{'floor':>7} {'of floor':>8}  {subject} is"
    ]
    for one in mine:
        same = (one.mbit, one.nodes, one.per_node, one.note)
        against = [
            other
            for other in mine
            if other.name == subject and (other.mbit, other.nodes, other.per_node, other.note) == same
        ]
        ratio = f"{one.seconds / against[0].seconds:.2f}×" if against else ""
        tokens = f"{one.tokens / one.seconds:.0f}" if one.tokens else ""
        over = f"{one.sent / one.floor:.3f}" if one.floor else ""
        lowest = "" if one.floor is None else f"{one.floor:.3f}"
        label = f"{one.name} {one.note if part == 'scaling' else ''}"
        lines.append(
            f"{one.mbit:>6} {one.nodes:>3} × {one.per_node:<1} {label:<22} {one.seconds:>8.2f} {one.spread:>6.0%} "
            f"{tokens:>7} {one.cpu:>7.2f} {one.sent:>8.4f} {lowest:>7} {over:>8}  {ratio}"
        )
    if part in {"scaling", "mlp"}:
        lines += efficiencies(mine)
    return lines


def efficiencies(mine: Sequence[Series]) -> list[str]:
    """Weak scaling: a step's time on one node over that on several, and how much quicker several are together."""
    lines = []
    for one in mine:
        alone = [other for other in mine if other.nodes == 1 and (other.name, other.note) == (one.name, one.note)]
        if alone and one.nodes > 1:
            share = alone[0].seconds / one.seconds
            name = f"{one.name}, {one.note}" if one.note else one.name
            lines.append(f"{name}: {share:.1%} on {one.nodes} nodes, {share * one.nodes:.2f}× one node")
    return lines


def size_of(shape: Shape) -> float:
    """M: bytes of the model's parameters in float32."""
    if shape.mlp:
        return 4.0 * shape.layers * (shape.width + 1) * shape.width
    block = 12 * shape.width**2 + 13 * shape.width
    return 4.0 * (shape.layers * block + (shape.vocabulary + shape.sequence) * shape.width + 2 * shape.width)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as an exception, so that folders are cleaned up, too
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rates", nargs="+", type=int, default=[1000, 200], metavar="MBIT")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--json", type=Path, help="write every repetition to this file as well")
    options = parser.parse_args(arguments)
    try:
        check()
        bench = Bench(options)
        bench.run()
    except (CannotRun, RankFailed) as error:
        say(f"cannot measure: {error}")
        return 1
    if options.json:
        found: list[dict[str, Any]] = [asdict(one) for one in bench.series]
        options.json.write_text(json.dumps({"series": found, "remarks": bench.remarks}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
