"""Which folders a Python environment needs, and how paths are put in place without a sandbox."""

import sys
from pathlib import Path

import pytest

from trainshed_worker.sandbox.environment import python_binds
from trainshed_worker.sandbox.plain import localize
from trainshed_worker.sandbox.spec import Bind, Command, SandboxError, SandboxSpec


def test_a_venv_and_its_base_but_no_parent(tmp_path: Path) -> None:
    base, venv, source = tmp_path / "base 3", tmp_path / "venv", tmp_path / "src"
    for folder in (base / "bin", venv / "bin", source):
        folder.mkdir(parents=True)
    (base / "bin" / "python3").touch()
    (venv / "bin" / "python3").symlink_to(base / "bin" / "python3")
    (venv / "bin" / "python").symlink_to("python3")
    (venv / "pyvenv.cfg").write_text(f"home = {base / 'bin'}\n")
    binds = python_binds(venv, [source])
    assert [bind.source for bind in binds] == [str(venv), str(base), str(source)]
    assert all(bind.target == bind.source and not bind.writable for bind in binds)


def test_this_environment_holds_its_interpreter() -> None:
    sources = [Path(bind.source) for bind in python_binds(sys.prefix)]
    real = Path(sys.executable).resolve()
    assert any(source in real.parents for source in sources) or real.parts[1] == "usr"


def test_a_folder_without_python_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="bin/python"):
        python_binds(tmp_path)


def test_paths_are_replaced_at_their_beginning_alone() -> None:
    binds = [Bind("/job/ml", "/opt/ml"), Bind("/data", "/opt/ml/input/data/train"), Bind("/venv", "/venv")]
    command = Command(
        ["/venv/bin/python", "/opt/ml/code/train.py", "--x=/opt/ml", "/opt/mlx"],
        {"SM_CHANNEL_TRAIN": "/opt/ml/input/data/train", "PYTHONPATH": "/opt/ml/code:/lib"},
        cwd="/opt/ml/code",
    )
    local = localize(command, binds)
    assert local.argv == ["/venv/bin/python", "/job/ml/code/train.py", "--x=/opt/ml", "/opt/mlx"]
    assert local.env == {"SM_CHANNEL_TRAIN": "/data", "PYTHONPATH": "/job/ml/code:/lib"}
    assert local.cwd == "/job/ml/code"


def test_a_spec_survives_its_file() -> None:
    spec = SandboxSpec("/d", "algo-1", [Command(["a"], {"k": "v"}, prefix="[0] ")], binds=[Bind("/a", "/b")], slot=3)
    assert SandboxSpec.from_json(spec.to_json()) == spec
