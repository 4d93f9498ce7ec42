"""What `trainshed submit` reads, and how command errors look."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from trainshed_service import cli
from trainshed_service.cli.errors import CommandError
from trainshed_service.cli.jobs import read_request

TRAINSHED = Path(sys.executable).with_name("trainshed")


def test_json_and_yaml_give_the_same_request(tmp_path: Path):
    request = {"TrainingJobName": "2026-01-01", "HyperParameters": {"epochs": "3", "lr": "1e-3"}}
    (tmp_path / "job.json").write_text(json.dumps(request))
    (tmp_path / "job.yaml").write_text("TrainingJobName: 2026-01-01\nHyperParameters:\n  epochs: '3'\n  lr: '1e-3'\n")
    assert read_request(tmp_path / "job.json") == request
    assert read_request(tmp_path / "job.yaml") == request


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.json", "{", "neither JSON nor YAML"),
        ("a.yaml", "a: [", "neither JSON nor YAML"),
        ("a.yaml", "- 1\n- 2\n", "one object"),
        ("a.yaml", "1: 2\n", "one object"),
    ],
)
def test_bad_files_are_told_in_a_sentence(tmp_path: Path, name: str, text: str, words: str):
    (tmp_path / name).write_text(text)
    with pytest.raises(CommandError, match=words):
        read_request(tmp_path / name)


def test_an_absent_file_is_named(tmp_path: Path):
    with pytest.raises(CommandError, match=r"cannot read .*absent\.json: No such file"):
        read_request(tmp_path / "absent.json")


@pytest.mark.parametrize("words", [["env"], ["ps"], ["describe", "x"], ["logs", "x"], ["stop", "x"], ["nodes"]])
def test_a_home_that_is_not_there_gives_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str]
):
    monkeypatch.setattr(sys, "argv", ["trainshed", *words, "--home", str(tmp_path / "none")])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    assert ended.value.code == 1 and out == ""
    assert err.startswith("trainshed: there is no Trainshed in ") and "trainshed up" in err
    assert len(err.splitlines()) == 1


def test_the_installed_command_ends_as_its_entry_does(tmp_path: Path):
    done = subprocess.run([TRAINSHED, "env", "--home", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("trainshed: there is no Trainshed in ")


def test_help_loads_nothing_heavy():
    code = (
        "import sys\nfrom trainshed_service.cli import app\nprint([n for n in ('boto3', 'torch') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
