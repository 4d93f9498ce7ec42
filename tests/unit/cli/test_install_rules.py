"""Which torch is installed where: never a CUDA build by accident."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def install() -> ModuleType:
    spec = importlib.util.spec_from_file_location("trainshed_install", ROOT / "scripts" / "install.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def asked(install: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What pip would have been asked for; the rules are under test, not pip."""
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(install, "pip", lambda *words: calls.append(words))
    return calls


def set_machine(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, *, cuda: bool, installed: str | None, sees: bool
) -> None:
    values: dict[str, Any] = {
        "has_cuda_device": lambda: cuda,
        "installed_torch": lambda: installed,
        "sees_cpu_wheel": lambda version: sees,
    }
    for name, value in values.items():
        monkeypatch.setattr(install, name, value)


@pytest.mark.parametrize(
    ("cuda", "installed", "sees", "expected"),
    [
        (False, None, True, [("install", "torch==2.13.0+cpu")]),
        (
            False,
            None,
            False,
            [("install", "torch==2.13.0+cpu", "--extra-index-url", "https://download.pytorch.org/whl/cpu")],
        ),
        (False, "2.13.0+cpu", False, []),
        (False, "2.13.0", True, [("install", "torch==2.13.0+cpu")]),
        (True, None, True, [("install", "torch==2.13.0")]),
        (True, "2.13.0+cu130", True, []),
    ],
)
def test_torch_by_rule(
    install: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    asked: list[tuple[str, ...]],
    cuda: bool,
    installed: str | None,
    sees: bool,
    expected: list[tuple[str, ...]],
):
    set_machine(install, monkeypatch, cuda=cuda, installed=installed, sees=sees)
    install.install_torch("2.13.0")
    assert asked == expected


def test_the_version_comes_from_the_project(install: ModuleType):
    assert f'"torch=={install.torch_version()}"' in (ROOT / "pyproject.toml").read_text()


def test_the_stamp_follows_all_that_decides(install: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(install, "PROJECT", tmp_path / "pyproject.toml")
    monkeypatch.setattr(install, "CONSTRAINTS", tmp_path / "constraints.txt")
    before = install.digest()
    assert install.digest() == before
    (tmp_path / "constraints.txt").write_text("changed")
    assert install.digest() != before


@pytest.mark.parametrize(
    ("tail", "word"),
    [
        ("OSError: [Errno 28] No space left on device", "3 GB"),
        ("ProxyError('Cannot connect to proxy.')", "HTTPS_PROXY"),
        ("ERROR: No matching distribution found for torch==2.13.0+cpu", "pip config list"),
    ],
)
def test_failures_come_with_advice(install: ModuleType, tail: str, word: str):
    assert word in install.advice(tail)


def test_no_client_environment_may_bring_torch():
    locks = sorted((ROOT / "requirements" / "clients").glob("*.lock"))
    wanted = sorted((ROOT / "requirements" / "clients").glob("*.txt"))
    assert [path.stem for path in locks] == [path.stem for path in wanted] != []
    for path in locks:
        lines = path.read_text().splitlines()
        assert "torch<0" in lines, path
        assert not [line for line in lines if line.startswith(("torch==", "nvidia", "triton"))], path
    assert "torch" not in {line.split("==")[0] for line in (ROOT / "requirements/constraints.txt").read_text().split()}
