"""The words by which a newcomer learns what their machine lacks."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "check_machine.py"


@pytest.fixture(scope="module")
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_machine", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def program(folder: Path, name: str, body: str) -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_it_is_written_for_old_interpreters():
    ast.parse(SCRIPT.read_text(), feature_version=(3, 6))
    imported = {
        name.name.split(".")[0]
        for node in ast.walk(ast.parse(SCRIPT.read_text()))
        if isinstance(node, ast.Import)
        for name in node.names
    }
    assert imported == {"os", "platform", "shutil", "subprocess", "sys"}


@pytest.mark.parametrize(
    ("system", "libc", "words"),
    [
        ("Darwin", "", ["macOS", "docker compose"]),
        ("Windows", "", ["Windows", "docker compose"]),
        ("Linux", "", ["musl", "docker compose"]),
        ("Linux", "musl", ["musl", "docker compose"]),
    ],
)
def test_other_systems_are_told_of_containers(check: ModuleType, system: str, libc: str, words: list[str]):
    findings = check.Findings()
    check.check_system(findings, system, libc)
    (problem,) = findings.problems
    assert all(word in problem for word in words)


def test_linux_with_glibc_is_fine(check: ModuleType):
    findings = check.Findings()
    check.check_system(findings, "Linux", "glibc")
    assert findings.problems == []


def test_an_old_python_gives_way_to_a_newer_one_on_path(check: ModuleType, tmp_path: Path):
    old = program(tmp_path, "python3", "echo 3 9")
    new = program(tmp_path, "python3.12", "echo 3 12")
    findings = check.Findings()
    assert check.choose_python(findings, [old, new]) == new
    assert findings.problems == []


def test_a_shim_that_does_not_start_is_passed_over(check: ModuleType, tmp_path: Path):
    broken = program(tmp_path, "python3.13", "exit 127")
    new = program(tmp_path, "python3.11", "echo 3 11")
    assert check.choose_python(check.Findings(), [broken, str(tmp_path / "absent"), new]) == new


def test_only_old_ones_are_named_with_their_versions(check: ModuleType, tmp_path: Path):
    old = program(tmp_path, "python3", "echo 3 9")
    findings = check.Findings()
    assert check.choose_python(findings, [old]) is None
    (problem,) = findings.problems
    assert "Python 3.11 or newer" in problem and f"{old} is 3.9" in problem


def test_a_python_without_venv_names_the_package(check: ModuleType, tmp_path: Path):
    bare = program(tmp_path, "python3", 'case "$2" in *ensurepip*) exit 1;; *) echo 3 11;; esac')
    findings = check.Findings()
    assert check.choose_python(findings, [bare]) is None
    assert "apt-get install python3.11-venv" in findings.problems[0]


def test_candidates_are_in_order_of_preference(check: ModuleType, tmp_path: Path):
    for name in ("python3.11", "python3.13"):
        program(tmp_path, name, "exit 0")
    found = check.python_candidates(str(tmp_path))[1:]
    assert [Path(path).name for path in found] == ["python3.13", "python3.11"]


def test_a_full_disk_is_told_in_gigabytes(check: ModuleType):
    findings = check.Findings()
    check.check_disk(findings, "/somewhere", int(1.25e9))
    assert "1.2 GB free" in findings.problems[0] and "3 GB" in findings.problems[0]
    check.check_disk(findings, "/somewhere", 4 * 1024**3)
    assert len(findings.problems) == 1


@pytest.mark.parametrize(("is_root", "word"), [(True, "--cap-add SYS_ADMIN"), (False, "sysctl -w")])
def test_missing_namespaces_warn_with_the_cure(check: ModuleType, is_root: bool, word: str):
    findings = check.Findings()
    check.check_namespaces(findings, is_root, works=False)
    assert findings.problems == [] and word in findings.warnings[0]
    check.check_namespaces(findings, is_root, works=True)
    assert len(findings.warnings) == 1


@pytest.mark.parametrize(
    ("environment", "count"),
    [
        ({}, 0),
        ({"HTTP_PROXY": "http://p:3128"}, 1),
        ({"https_proxy": "http://p:3128", "no_proxy": "example.org"}, 1),
        ({"HTTP_PROXY": "http://p:3128", "NO_PROXY": "localhost,127.0.0.1"}, 0),
        ({"HTTP_PROXY": "http://p:3128", "NO_PROXY": "*"}, 0),
    ],
)
def test_proxies_that_would_catch_local_calls(check: ModuleType, environment: dict[str, str], count: int):
    findings = check.Findings()
    check.check_proxies(findings, environment)
    assert len(findings.warnings) == count
