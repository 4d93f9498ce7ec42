"""`trainshed plan`: on wide and narrow terminals, through a pipe, as JSON, and what it says of mistakes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from trainshed_service.cli import planning, shown
from trainshed_service.cli.app import app
from trainshed_service.cli.errors import CommandError

MODEL = ["plan", "--params", "30B", "--instance", "ml.p4d.24xlarge", "--count", "32"]


def printed(monkeypatch: pytest.MonkeyPatch, home: Path, width: int, *more: str) -> str:
    text = io.StringIO()
    console = Console(file=text, width=width, highlight=False)
    monkeypatch.setattr(planning, "out", console)
    monkeypatch.setattr(shown, "out", console)
    done = CliRunner().invoke(app, [*MODEL, *more, "--home", str(home)], catch_exceptions=False)
    assert done.exit_code == 0
    return text.getvalue() + done.stdout


def test_the_published_case(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = printed(monkeypatch, tmp_path, 240)
    assert "30 B parameters, 600 GB of model state" in text
    assert "128: the rule of thumb" in text
    assert any(line.startswith("128*") for line in text.splitlines())
    assert "39.7" not in text


def test_a_narrow_terminal_folds_and_loses_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = printed(monkeypatch, tmp_path, 50, "--simulate")
    assert max(map(len, text.splitlines())) <= 50
    whole = "".join(text.split())
    for words in ("600GBofmodelstate", "39.7", "99.4"):
        assert words in whole


def test_simulation_prints_what_was_published_and_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rows = [
        {"mode": "mics", "nodes": 2, "ranks_per_node": 2, "link_mbit": 200, "accumulation": 4, "degree": 2,
         "parameter_bytes": 55.27e6, "step_seconds": 4.95, "bytes_per_node": 55.4e6}
    ]  # fmt: skip
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(rows))
    text = printed(monkeypatch, tmp_path, 240, "--measured", str(path), "--batch", "4")
    assert "above: more than bytes and arithmetic explain" in text
    measured = next(line for line in text.splitlines() if line.startswith("mics"))
    assert measured.split()[1:] == [
        "2",
        "×",
        "2",
        "200",
        "55.4",
        "MB",
        "55.3",
        "MB",
        "4.95",
        "s",
        "at",
        "least",
        "2.21",
        "s",
    ]


def test_json(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [*MODEL, "--json", "--simulate", "--home", str(tmp_path)], catch_exceptions=False)
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["recommendedDegree"] == 128
    assert document["simulation"]["published"][0]["published"] == 99.4


def test_a_type_of_this_installation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "instance_types.json").write_text('{"ml.lab7.large": {"vcpus": 4, "memoryGiB": 32}}')
    words = ["plan", "--params", "100M", "--instance", "ml.lab7.large", "--precision", "fp32", "--home", str(tmp_path)]
    done = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert json.loads(done.stdout)["cluster"]["deviceMemoryBytes"] == 32 * 2**30


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--degree", "100"], "use 32, 64 or 128"),
        (["--precision", "fp8"], "precision is one of bf16, fp16, fp32"),
        (["--measured", "/nowhere/rows.json"], "cannot be read"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path: Path, more: list[str], words: str) -> None:
    with pytest.raises(CommandError, match=words):
        CliRunner().invoke(app, [*MODEL, *more, "--home", str(tmp_path)], catch_exceptions=False)
