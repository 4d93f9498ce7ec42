"""Tests whose system tool is absent: one counted line for each tool with its Debian package, or failures in the CI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = {"gcc": "gcc", "mpirun": "openmpi-bin"}
TESTS = """
import pytest

@pytest.mark.needs("gcc")
@pytest.mark.parametrize("number", range(2))
def test_compiles(number): raise AssertionError("it ran")

@pytest.mark.needs("mpirun", "gcc")
def test_runs_ranks(): raise AssertionError("it ran")

def test_needs_nothing(): pass
"""


BOTH = """
import os, sys, pytest
for required in ("", "1"):
    os.environ["TRAINSHED_REQUIRE_TOOLS"] = required
    print("ended with", int(pytest.main(sys.argv[1:])), flush=True)
"""


def test_an_absent_tool(tmp_path: Path) -> None:
    """No tool is on PATH; the hooks are those of tests/conftest.py. Both ways in one interpreter: it takes a second."""
    path = tmp_path / "test_tools.py"
    path.write_text(TESTS)
    (tmp_path / "tiny.ini").write_text("[pytest]\nmarkers = needs(tool)\naddopts = -ra -p tests.conftest\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PATH": str(tmp_path), "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    words = [sys.executable, "-c", BOTH, "-c", str(tmp_path / "tiny.ini"), "-p", "no:cacheprovider", str(path)]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=True)
    skipping, failing, _ = done.stdout.split("ended with ")
    texts = [f"needs {tool}, which is absent; Debian package: {name}" for tool, name in PACKAGES.items()]
    lines = [line for line in skipping.splitlines() if line.startswith("SKIPPED")]
    assert [line.split("] ")[0] for line in sorted(lines, reverse=True)] == ["SKIPPED [2", "SKIPPED [1"], skipping
    assert all(line.endswith(text) for line, text in zip(sorted(lines, reverse=True), texts, strict=True))
    assert "1 passed, 3 skipped" in skipping
    assert failing[0] == "0", "what is skipped is no failure"
    assert "1 passed, 3 errors" in failing
    assert all(text in failing for text in texts)
    assert done.stdout.endswith("ended with 1\n")
    assert "it ran" not in done.stdout
