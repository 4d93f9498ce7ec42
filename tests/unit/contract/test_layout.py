"""Names inside and outside of an instance."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from trainshed_worker.contract import INPUT_DATA, ML, WARM_POOL_CACHE, InstanceLayout, ml_binds


@pytest.mark.parametrize("name", ["code/train.py", "input/config/hyperparameters.json", "model", "input/data/train/a"])
def test_host_and_inside_are_each_other_s_inverse(tmp_path: Path, name: str) -> None:
    layout = InstanceLayout(tmp_path)
    assert layout.inside(layout.host(ML / name)) == ML / name


def test_channels_are_outside_of_what_the_job_may_write_as_it_is(tmp_path: Path) -> None:
    layout = InstanceLayout(tmp_path)
    layout.create()
    assert not layout.input_data.is_relative_to(layout.ml)
    ml, data = ml_binds(layout, layered=True)
    assert (Path(ml.source), Path(data.source)) == (layout.ml, layout.input)
    assert data.layered
    assert PurePosixPath(data.target) == INPUT_DATA
    assert (layout.ml / "input" / "data").is_dir()
    assert (layout.ml / WARM_POOL_CACHE.relative_to(ML)).is_dir()
    (_, copied) = ml_binds(layout, layered=False)
    assert (Path(copied.source), copied.layered, copied.give) == (layout.input_data, False, True)


@pytest.mark.parametrize(
    ("path", "outside"),
    [
        ("/opt/ml/checkpoints", False),
        ("/opt/ml/input/data/train/kept", True),
        ("/opt/ml/input/dataset", False),
        ("/tmp/checkpoints", True),
    ],
)
def test_checkpoints_in_a_channel_have_a_place_of_their_own(tmp_path: Path, path: str, outside: bool) -> None:
    layout = InstanceLayout(tmp_path, PurePosixPath(path))
    layout.create()
    assert layout.checkpoints_outside_ml is outside
    assert layout.checkpoints.is_relative_to(layout.ml) is not outside
    assert layout.checkpoints.is_dir()
