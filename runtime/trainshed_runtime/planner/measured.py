"""Measurements of steps, as `make bench-runtime` writes them, and what the model predicts for each.

The file is JSON: a list of rows, an object with that list under `rows`, or what the benchmark's `--json` wrote (its
`series`, of which medians are taken). A row names its mode and what it ran on. Compute that was measured alone, on one
node, is an input, since no maker publishes the rate of a shared core; where it is not known, only the wire's time is
predicted, which a step cannot go below.
"""

import json
import statistics
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

_BENCH_MODES = {  # the benchmark's name → (mode, hierarchical)
    "fsdp": ("full-shard-gloo", False),
    "fsdp_ring": ("full-shard", False),
    "zero3": ("full-shard-gloo", False),
    "hybrid": ("hybrid-shard", False),
    "hybrid_2hop": ("mics", False),
    "ddp": ("data-parallel", False),
    "ddp_smddp": ("data-parallel", True),
    "ours": ("mics", True),
}
_BENCH_ACCUMULATION = 4
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
    label: str | None = None

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
        """The bytes, and the time; of that the arithmetic is 0 where it is not known, and `most` is no bound then."""
        traffic = step_traffic(self.scheme(), self.topology, self.accumulation, self.parameter_bytes)
        # Ranks of one node talk through its memory, for which no rate is published: it counts as no time.
        return traffic, step_time(traffic, self.compute_seconds or 0.0, self.link_mbit * 125e3, float("inf"))


def read_measurements(path: Path) -> list[Measurement]:
    """The rows of a file. ValueError that names the file and the row."""
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if isinstance(content, dict) and isinstance(content.get("series"), list):
        return _from_series(content["series"], str(path))
    rows = content.get("rows") if isinstance(content, dict) else content
    if not isinstance(rows, list):
        raise ValueError(f"{path} holds no list of rows")
    return [_measurement(row, f"{path}, row {number}") for number, row in enumerate(rows, 1)]


def _from_series(series: list[Any], where: str) -> list[Measurement]:
    """Medians of the benchmark's training and scaling; one node's steps are the compute of the same mode on more."""
    try:
        alone = {
            (one["part"], one["name"], one["note"]): statistics.median(each["seconds"] for each in one["measured"])
            for one in series
            if one["nodes"] == 1 and one["measured"]
        }
        return [
            _of_series(one, alone.get((one["part"], one["name"], one["note"])))
            for one in series
            if one["part"] in ("training", "scaling") and one["name"] in _BENCH_MODES and one["nodes"] > 1
            if one["measured"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{where} is not as the benchmark writes it: {error!r}") from None


def _of_series(one: Mapping[str, Any], compute: float | None) -> Measurement:
    mode, hierarchical = _BENCH_MODES[one["name"]]
    note = str(one["note"])
    steps = int(note.removeprefix("accumulation ")) if note.startswith("accumulation ") else _BENCH_ACCUMULATION
    world = one["nodes"] * one["per_node"]
    return Measurement(
        mode=mode,
        nodes=one["nodes"],
        ranks_per_node=one["per_node"],
        link_mbit=one["mbit"],
        accumulation=steps,
        parameter_bytes=one["bytes_of_m"],
        degree=world if mode.startswith("full") else one["per_node"],
        step_seconds=statistics.median(each["seconds"] for each in one["measured"]),
        bytes_per_node=statistics.median(each["sent"] for each in one["measured"]),
        compute_seconds=compute,
        hierarchical=hierarchical,
        label=f"{one['name']} {note}".strip(),
    )


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
