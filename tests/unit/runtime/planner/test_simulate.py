"""The model at scale, against publications and against a file of measurements."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks.runtime import Series
from benchmarks.runtime_cluster import Measured
from trainshed_runtime.planner.document import simulation_document
from trainshed_runtime.planner.hardware import MACHINES, plain_machine
from trainshed_runtime.planner.measured import read_measurements
from trainshed_runtime.planner.shape import shape_of
from trainshed_runtime.planner.simulate import published, scaling

THIRTY = shape_of(30 * 10**9, 2048, hidden=7168, layers=48, heads=64)


def test_published_figures_against_the_model() -> None:
    found = {each.what.split(",")[0]: each for each in published()}
    weak = found["weak scaling"]
    assert weak.published == 99.4 and weak.within
    assert found["per device"].within and found["samples per second"].within and found["gain over FSDP"].within
    zero = found["gain over ZeRO-3"]
    assert zero.published == 39.7
    assert 0 <= zero.least <= zero.most < zero.published, "bytes alone do not explain it; the output has to say so"
    assert not zero.within


def test_scaling_over_cluster_sizes() -> None:
    points = scaling(THIRTY, MACHINES["ml.p4d.24xlarge"], 128, (1, 16, 32, 64), batch=4, steps=8)
    assert [point.devices for point in points] == [128, 256, 512], "one node does not hold the partition group"
    for point in points:
        for ours, theirs in zip(point.tokens["mics"], point.tokens["full shard"], strict=True):
            assert ours >= theirs
        assert all(0.9 < value <= 1.0 for value in point.efficiency["mics"])
    assert points[0].efficiency["mics"] == (1.0, 1.0)
    with pytest.raises(ValueError, match="no arithmetic rate"):
        scaling(THIRTY, plain_machine("ml.c5.large", 4 * 2**30, 1), 1, (1,), 1, 1)


def test_measurements_of_a_file(tmp_path: Path) -> None:
    row = {
        "mode": "full-shard-gloo",
        "nodes": 2,
        "ranks_per_node": 2,
        "link_mbit": 200,
        "accumulation": 4,
        "parameter_bytes": 55.27e6,
        "degree": 4,
        "step_seconds": 31.52,
        "bytes_per_node": 665.0e6,
        "compute_seconds": 2.0,
        "load": 5.52,
    }
    rows = [row, {**row, "mode": "mics", "degree": 2, "step_seconds": 4.95, "bytes_per_node": 55.4e6}]
    path = tmp_path / "measured.json"
    path.write_text(json.dumps({"rows": rows}))
    full, ours = simulation_document([], [], read_measurements(path))["measured"]
    for each in (full, ours):
        assert each["bytesPerNode"]["measured"] == pytest.approx(each["bytesPerNode"]["predicted"], rel=0.005)
    assert full["stepSeconds"]["predicted"] == pytest.approx([26.53, 28.53], abs=0.01)
    assert ours["stepSeconds"]["predicted"] == pytest.approx([2.21, 4.21], abs=0.01)


def test_what_the_benchmark_writes(tmp_path: Path) -> None:
    def series(part: str, name: str, nodes: int, note: str, seconds: list[float], sent: float) -> dict[str, Any]:
        measured = [Measured(each, 1.0, int(sent), int(sent), None) for each in seconds]
        return asdict(Series(part, name, nodes, 2, 1000, 55.27e6, None, 512, note, measured))

    rows = [
        series("training", "fsdp", 2, "", [7.0, 9.0, 8.0], 665e6),
        series("training", "ours", 2, "", [2.0], 55.4e6),
        series("scaling", "ours", 1, "accumulation 16", [12.0], 0),
        series("scaling", "ours", 4, "accumulation 16", [12.5], 83.0e6),
        series("collectives", "smddp", 2, "all-reduce", [1.0], 64e6),
    ]
    path = tmp_path / "bench.json"
    path.write_text(json.dumps({"series": rows, "remarks": []}))
    found = read_measurements(path)
    assert [row.label for row in found] == ["fsdp", "ours", "ours accumulation 16"]
    assert found[0].step_seconds == 8.0
    for row in found:
        traffic, _ = row.predicted()
        assert row.bytes_per_node == pytest.approx(traffic.total.node, rel=0.005)
    full, _, scaled = simulation_document([], [], found)["measured"]
    assert full["stepSeconds"]["predicted"] == [pytest.approx(5.306, abs=0.01), None]
    assert scaled["stepSeconds"]["predicted"] == pytest.approx([12.0, 12.0 + 1.5 * 55.27e6 / 125e6])
    path.write_text('{"series": [{"part": "training"}]}')
    with pytest.raises(ValueError, match="not as the benchmark writes it"):
        read_measurements(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[", "is not JSON"),
        ("{}", "holds no list of rows"),
        ("[1]", "row 1 is not an object"),
        ('[{"mode": "mics"}]', "row 1: "),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        read_measurements(path)
    with pytest.raises(ValueError, match="cannot be read"):
        read_measurements(tmp_path / "absent.json")
