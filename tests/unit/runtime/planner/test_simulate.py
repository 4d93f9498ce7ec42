"""The model at scale, against publications and against a file of measurements."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
