"""What `trainshed plan` prints: the plan for people, narrow terminals and pipes alike, or as JSON.

It asks no service: the planner is arithmetic, and an installation's own instance types are read from its home.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from trainshed_runtime.planner import InstanceFacts, Plan, PlanError, answer, parse_request
from trainshed_runtime.planner.document import plan_document, simulation_document
from trainshed_runtime.planner.measured import Measurement, read_measurements
from trainshed_runtime.planner.plan import Choice
from trainshed_runtime.planner.simulate import Comparison, ScalePoint, published, scaling
from trainshed_runtime.planner.sizes import shown_bytes, shown_count, shown_seconds
from trainshed_runtime.planner.timing import Step
from trainshed_service.cli.errors import CommandError
from trainshed_service.cli.shown import out, print_json, print_table
from trainshed_service.embedded.home import default_home
from trainshed_service.providers import known_type, load_types

_TYPES_FILE = "instance_types.json"


def print_plan(
    members: Mapping[str, Any], folder: Path | None, simulate: bool, measured: Path | None, as_json: bool
) -> None:
    """`members`: as the planner's request names them."""
    try:
        request = parse_request(members)
        plan = answer(request, _facts(request.instance, folder))
        rows = read_measurements(measured) if measured is not None else []
        simulation = (published(), _scaling(plan), rows) if simulate else None
    except (PlanError, ValueError) as error:
        raise CommandError(str(error)) from error
    if as_json:
        more = {"simulation": simulation_document(*simulation)} if simulation is not None else {}
        print_json({**plan_document(plan), **more})
        return
    _print_summary(plan)
    _print_degrees(plan)
    if simulation is not None:
        _print_published(simulation[0])
        _print_scaling(simulation[1])
        _print_measured(rows)


def _facts(instance: str, folder: Path | None) -> InstanceFacts | None:
    load_types((folder or default_home()) / _TYPES_FILE)
    known = known_type(instance)
    return InstanceFacts(known.memory_bytes, known.accelerators) if known is not None else None


def _scaling(plan: Plan) -> list[ScalePoint]:
    """From the smallest cluster that holds one copy to eight times the asked one; none where rates are unknown."""
    machine, choice = plan.cluster.machine, plan.shown
    if choice is None or not (machine.device.half and machine.device.link and machine.link):
        return []
    smallest = max(1, choice.degree // machine.devices)
    sizes = []
    while smallest <= plan.cluster.count * 8:
        sizes.append(smallest)
        smallest *= 2
    batch = plan.settings.micro_batch
    return scaling(plan.shape, machine, choice.degree, sizes, batch, plan.accumulation)


def _print_summary(plan: Plan) -> None:
    cluster, choice = plan.cluster, plan.shown
    ranks = cluster.topology.world_size
    rows = [
        ("Model", f"{shown_count(plan.shape.parameters)} parameters, {shown_bytes(plan.states)} of model state"),
        (
            "Cluster",
            f"{cluster.count} × {cluster.machine.name}, {cluster.processes} ranks each: {ranks} ranks, "
            f"{cluster.machine.device.name}",
        ),
        ("Degree", f"{plan.recommended or 'none'}: {plan.reason}"),
    ]
    if choice is not None:
        rows += _details(plan, choice)
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in (*rows, *(("Note", note) for note in plan.notes)):
        table.add_row(name, escape(text))
    out.print(table)
    out.print()


def _details(plan: Plan, choice: Choice) -> list[tuple[str, str]]:
    memory, traffic = choice.memory, choice.traffic
    node = {name: shown_bytes(getattr(traffic, name).node) for name in ("total", "gather", "scatter", "replica")}
    parts = ", ".join(
        f"{name} {shown_bytes(size)}"
        for name, size in (
            ("parameters", memory.parameters),
            ("gradients", memory.gradients),
            ("optimizer", memory.optimizer),
            ("gathered", memory.gathered),
            ("activations", memory.activations),
        )
    )
    rows = [
        (
            f"At {choice.degree}",
            f"{choice.replicas} {'copies' if choice.replicas != 1 else 'copy'} of the model, micro-batch "
            f"{plan.settings.micro_batch} × {plan.accumulation}",
        ),
        ("Memory", f"{shown_bytes(memory.total)} of {shown_bytes(plan.usable)} usable per rank: {parts}"),
        (
            "Links",
            f"{node['total']} leave each instance in a step (gather {node['gather']}, scatter {node['scatter']}, "
            f"copies {node['replica']}), {shown_bytes(traffic.total.rank)} each rank for its neighbours",
        ),
    ]
    if choice.step is not None:
        low, high = plan.samples_per_second(choice.step)
        rows.append(
            (
                "Time",
                f"{shown_seconds(choice.step.least)} to {shown_seconds(choice.step.most)} a step, {low:.3g} to "
                f"{high:.3g} samples/s, at {plan.utilisation:.0%} of the peak rate: all communication hidden, or none",
            )
        )
    return rows


def _print_degrees(plan: Plan) -> None:
    rows = []
    for choice in plan.choices:
        mark = "*" if choice.degree == plan.recommended else ""
        rows.append(
            (
                f"{choice.degree}{mark}",
                str(choice.replicas),
                shown_bytes(choice.memory.total),
                str(choice.largest_batch) if choice.largest_batch else "no",
                shown_bytes(choice.traffic.total.node),
                f"{shown_seconds(choice.step.least)}–{shown_seconds(choice.step.most)}" if choice.step else "",
            )
        )
    print_table(("DEGREE", "COPIES", "MEMORY", "FITS BATCH", "PER NODE", "STEP"), rows, "")


def _print_published(comparisons: Iterable[Comparison]) -> None:
    out.print("\nPublished figures against the model (peak rates and link speeds alone; nothing fitted, no latency):")
    rows = [
        (each.what, f"{each.published:g} {each.unit}", f"{each.least:.1f} to {each.most:.1f}", _verdict(each))
        for each in comparisons
    ]
    print_table(("FIGURE", "PUBLISHED", "MODEL", ""), rows, "")


def _verdict(comparison: Comparison) -> str:
    if comparison.within:
        return "within"
    if comparison.published > comparison.most:
        return "above: more than bytes and arithmetic explain"
    return "below"


def _print_scaling(points: Sequence[ScalePoint]) -> None:
    if not points:
        return
    out.print("\nThe same job per cluster size (tokens/s, and efficiency per device, with nothing or all hidden):")
    rows = []
    for point in points:
        cells = [str(point.nodes), str(point.devices)]
        for name in ("mics", "full shard"):
            low, high = point.tokens[name]
            hidden = point.efficiency[name]
            cells += [f"{shown_count(low)}–{shown_count(high)}", f"{min(hidden):.1%}"]
        rows.append(cells)
    print_table(("NODES", "DEVICES", "TWO-HOP", "", "FULL SHARD", ""), rows, "")


def _bounds(row: Measurement, step: Step | None) -> str:
    if step is None:
        return ""
    if row.compute_seconds is None:
        return f"at least {shown_seconds(step.least)}"
    return f"{shown_seconds(step.least)}–{shown_seconds(step.most)}"


def _print_measured(measurements: Sequence[Measurement]) -> None:
    out.print("\nMeasured steps against the model:")
    rows = []
    for row in measurements:
        traffic, step = row.predicted()
        sent = shown_bytes(row.bytes_per_node) if row.bytes_per_node is not None else ""
        rows.append(
            (
                row.label or row.mode + (", hierarchical" if row.hierarchical else ""),
                f"{row.nodes} × {row.ranks_per_node}",
                f"{row.link_mbit:g}",
                sent,
                shown_bytes(traffic.total.node),
                shown_seconds(row.step_seconds),
                _bounds(row, step),
            )
        )
    headings = ("MODE", "NODES", "MBIT/S", "BYTES", "MODEL", "STEP", "MODEL")
    print_table(headings, rows, "none given: --measured FILE, as `make bench-runtime` writes it")
