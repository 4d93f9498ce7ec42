"""plan: the options of the command, light to import; what it computes and prints is loaded when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainshed_service.cli.options import HomeOption, JsonOption


def plan(
    params: Annotated[str, typer.Option("--params", help="Parameters of the model: 30B, 350M.")],
    instance: Annotated[str, typer.Option("--instance", help="Instance type, such as ml.p4d.24xlarge.")],
    count: Annotated[int, typer.Option("--count", help="Instances.")] = 1,
    processes: Annotated[
        int | None, typer.Option("--processes", help="Ranks on each instance; default: one per device.")
    ] = None,
    degree: Annotated[int | None, typer.Option("--degree", help="Show this degree in detail.")] = None,
    sequence: Annotated[int, typer.Option("--sequence", help="Tokens of a sample.")] = 2048,
    batch: Annotated[
        int | None, typer.Option("--batch", help="Samples of a micro-step on each rank; without it a rule of thumb.")
    ] = None,
    accumulation: Annotated[int, typer.Option("--accumulation", help="Micro-steps of a step.")] = 1,
    precision: Annotated[str, typer.Option("--precision", help="bf16, fp16 or fp32.")] = "bf16",
    optimizer: Annotated[str, typer.Option("--optimizer", help="adam, momentum or sgd.")] = "adam",
    checkpointing: Annotated[
        str, typer.Option("--checkpointing", help="Activations: none, each, contiguous or group_N.")
    ] = "each",
    offload: Annotated[bool, typer.Option("--offload", help="Checkpointed activations go to the host.")] = False,
    horizon: Annotated[int, typer.Option("--horizon", help="Layers that stay on the device under --offload.")] = 4,
    flash: Annotated[bool, typer.Option("--flash", help="Attention keeps no scores.")] = False,
    live: Annotated[
        str, typer.Option("--live", help="Parameters that stay gathered in a step (sdp_max_live_parameters).")
    ] = "1B",
    hidden: Annotated[int | None, typer.Option("--hidden", help="Hidden size.")] = None,
    layers: Annotated[int | None, typer.Option("--layers", help="Layers.")] = None,
    heads: Annotated[int | None, typer.Option("--heads", help="Attention heads.")] = None,
    vocabulary: Annotated[int | None, typer.Option("--vocabulary", help="Words.")] = None,
    memory: Annotated[str | None, typer.Option("--memory", help="Of a device: 40GiB.")] = None,
    flops: Annotated[str | None, typer.Option("--flops", help="Rate of a device: 312T.")] = None,
    node_link: Annotated[str | None, typer.Option("--node-link", help="Network of an instance: 400Gbit/s.")] = None,
    device_link: Annotated[str | None, typer.Option("--device-link", help="Inside an instance: 300GB/s.")] = None,
    utilisation: Annotated[
        float, typer.Option("--utilisation", help="Share of the peak rate that the kernels reach.")
    ] = 0.5,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Hold the model against published and measured figures, too.")
    ] = False,
    measured: Annotated[
        Path | None, typer.Option("--measured", help="With --simulate: a file that `make bench-runtime` wrote.")
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what memory, bytes and time each sharding degree costs, and which one to take."""
    members = {
        "params": params,
        "instance": instance,
        "count": count,
        "processes": processes,
        "degree": degree,
        "sequence": sequence,
        "batch": batch,
        "accumulation": accumulation,
        "precision": precision,
        "optimizer": optimizer,
        "checkpointing": checkpointing,
        "offload": offload,
        "horizon": horizon,
        "flash": flash,
        "live": live,
        "hidden": hidden,
        "layers": layers,
        "heads": heads,
        "vocabulary": vocabulary,
        "memory": memory,
        "flops": flops,
        "nodeLink": node_link,
        "deviceLink": device_link,
        "utilisation": utilisation,
    }
    from trainshed_service.cli.planning import print_plan

    print_plan(members, home, simulate or measured is not None, measured, as_json)
