"""A plan and a simulation as JSON: one form for REST and for the command line. Sizes are bytes, times seconds."""

from collections.abc import Sequence
from typing import Any

from trainshed_runtime.planner.measured import Measurement
from trainshed_runtime.planner.memory import Memory
from trainshed_runtime.planner.plan import Choice, Plan
from trainshed_runtime.planner.simulate import Comparison, ScalePoint
from trainshed_runtime.planner.timing import Step
from trainshed_runtime.planner.traffic import Links


def plan_document(plan: Plan) -> dict[str, Any]:
    shape, cluster, device = plan.shape, plan.cluster, plan.cluster.machine.device
    return {
        "model": {
            "parameters": shape.parameters,
            "hidden": shape.hidden,
            "layers": shape.layers,
            "heads": shape.heads,
            "vocabulary": shape.vocabulary,
            "sequence": shape.sequence,
            "assumed": list(shape.assumed),
            "stateBytes": plan.states,
        },
        "cluster": {
            "instance": cluster.machine.name,
            "count": cluster.count,
            "processes": cluster.processes,
            "ranks": cluster.topology.world_size,
            "device": device.name,
            "deviceMemoryBytes": device.memory_bytes,
            "usableBytes": plan.usable,
            "nodeLinkBytesPerSecond": cluster.machine.link,
            "deviceLinkBytesPerSecond": device.link,
        },
        "precision": plan.settings.precision,
        "microBatch": plan.settings.micro_batch,
        "accumulation": plan.accumulation,
        "utilisation": plan.utilisation,
        "ruleOfThumbDegree": plan.rule,
        "recommendedDegree": plan.recommended,
        "reason": plan.reason,
        "degrees": [_choice(plan, choice) for choice in plan.choices],
        "notes": plan.notes,
    }


def _choice(plan: Plan, choice: Choice) -> dict[str, Any]:
    traffic = choice.traffic
    return {
        "degree": choice.degree,
        "replicas": choice.replicas,
        "fits": choice.fits,
        "largestMicroBatch": choice.largest_batch,
        "memoryBytes": _memory(choice.memory),
        "bytesPerStep": {
            "gather": _links(traffic.gather),
            "scatter": _links(traffic.scatter),
            "replica": _links(traffic.replica),
            "total": _links(traffic.total),
        },
        "step": None if choice.step is None else _step(plan, choice.step),
    }


def _memory(memory: Memory) -> dict[str, int]:
    return {
        "parameters": memory.parameters,
        "gradients": memory.gradients,
        "optimizer": memory.optimizer,
        "gathered": memory.gathered,
        "activations": memory.activations,
        "update": memory.update,
        "total": memory.total,
        "host": memory.host,
    }


def _links(links: Links) -> dict[str, int]:
    return {"perNode": round(links.node), "perRank": round(links.rank)}


def _step(plan: Plan, step: Step) -> dict[str, Any]:
    least, most = plan.samples_per_second(step)
    return {
        "leastSeconds": step.least,
        "mostSeconds": step.most,
        "computeSeconds": step.compute,
        "nodeWireSeconds": step.node_wire,
        "deviceWireSeconds": step.rank_wire,
        "samplesPerSecond": [least, most],
    }


def simulation_document(
    comparisons: Sequence[Comparison], points: Sequence[ScalePoint], measurements: Sequence[Measurement] = ()
) -> dict[str, Any]:
    return {
        "published": [
            {
                "what": each.what,
                "source": each.source,
                "unit": each.unit,
                "published": each.published,
                "predicted": [each.least, each.most],
                "within": each.within,
            }
            for each in comparisons
        ],
        "scaling": [
            {
                "nodes": point.nodes,
                "devices": point.devices,
                "tokensPerSecond": {name: list(pair) for name, pair in point.tokens.items()},
                "efficiency": {name: list(pair) for name, pair in point.efficiency.items()},
            }
            for point in points
        ],
        "measured": [_measured(each) for each in measurements],
    }


def _bounds(row: Measurement, step: Step | None) -> list[float | None] | None:
    """Without the compute there is no upper bound."""
    return None if step is None else [step.least, step.most if row.compute_seconds is not None else None]


def _measured(row: Measurement) -> dict[str, Any]:
    traffic, step = row.predicted()
    return {
        "mode": row.label or row.mode,
        "nodes": row.nodes,
        "ranksPerNode": row.ranks_per_node,
        "linkMbit": row.link_mbit,
        "degree": row.degree,
        "accumulation": row.accumulation,
        "bytesPerNode": {"measured": row.bytes_per_node, "predicted": traffic.total.node},
        "stepSeconds": {"measured": row.step_seconds, "predicted": _bounds(row, step)},
    }
