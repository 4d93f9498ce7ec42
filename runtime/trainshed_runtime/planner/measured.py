"""Measurements of steps, as `make bench-runtime` writes them, and what the model predicts for each.

The file is JSON: a list of rows, or an object with that list under `rows`. A row names its mode and what it ran on;
compute that was emulated, or measured alone, is an input, since no maker publishes the rate of a shared core.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from trainshed_runtime.planner.timing import Step, step_time
from trainshed_runtime.planner.traffic import (
    Scheme,
    Traffic,
    data_parallel,
    full_shard,
    hybrid_shard,
    mics,
    step_traffic,
)
from trainshed_runtime.topology import Topology

MODES = ("mics", "full-shard", "full-shard-gloo", "hybrid-shard", "hybrid-shard-gloo", "data-parallel")


@dataclass(frozen=True)
class Measurement:
    """One row.

    `link_mbit`: of a node, one direction; `parameter_bytes`: M, in the communicated type; `degree`: ranks of a
    partition group; `step_seconds` and `bytes_per_node`: what was measured (the second is None where it was not);
    `compute_seconds`: of the whole step, without communication, None where it is not known.
    """

    mode: str
    nodes: int
    ranks_per_node: int
    link_mbit: float
    accumulation: int
    parameter_bytes: float
    degree: int
    step_seconds: float
    bytes_per_node: float | None = None
    compute_seconds: float | None = None
    hierarchical: bool = False

    @property
    def topology(self) -> Topology:
        return Topology(self.nodes * self.ranks_per_node, self.ranks_per_node)

    def scheme(self) -> Scheme:
        """How the mode communicates; `-gloo`: with gloo's own reduce-scatter, which costs an all-reduce."""
        ring = not self.mode.endswith("-gloo")
        base = self.mode.removesuffix("-gloo")
        if base == "full-shard":
            scheme = full_shard(self.topology.world_size)
        elif base == "hybrid-shard":
            scheme = hybrid_shard(self.degree)
        elif base == "data-parallel":
            scheme = data_parallel()
        else:
            scheme = mics(self.degree)
        return replace(scheme, ring_scatter=ring, hierarchical=self.hierarchical)

    def predicted(self) -> tuple[Traffic, Step | None]:
        """The bytes, and the bounds of the step's time where the compute is known."""
        traffic = step_traffic(self.scheme(), self.topology, self.accumulation, self.parameter_bytes)
        if self.compute_seconds is None:
            return traffic, None
        # Ranks of one node talk through its memory, for which no rate is published: it counts as no time.
        return traffic, step_time(traffic, self.compute_seconds, self.link_mbit * 125e3, float("inf"))


def read_measurements(path: Path) -> list[Measurement]:
    """The rows of a file. ValueError that names the file and the row."""
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    rows = content.get("rows") if isinstance(content, dict) else content
    if not isinstance(rows, list):
        raise ValueError(f"{path} holds no list of rows")
    return [_measurement(row, f"{path}, row {number}") for number, row in enumerate(rows, 1)]


def _measurement(row: Any, where: str) -> Measurement:
    names = {field.name for field in fields(Measurement)}
    if not isinstance(row, Mapping):
        raise ValueError(f"{where} is not an object")
    known = {name: value for name, value in row.items() if name in names}
    try:
        measurement = Measurement(**known)
        if measurement.mode not in MODES:
            raise ValueError(f"mode is {measurement.mode!r}, not one of {', '.join(MODES)}")
        measurement.predicted()
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None
    return measurement
