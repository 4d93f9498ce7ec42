"""The look at what a run left finds each kind of trace, and nothing of a neighbour."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.leftovers import leftovers
from tests.support.wait import wait_until


@pytest.fixture(params=["argument", "variable", "working folder"])
def process(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Waits for its input, and names tmp_path in one way."""
    environment = {"PATH": os.environ["PATH"]}
    if request.param == "variable":
        environment["HOME"] = str(tmp_path / "home")
    words = [str(tmp_path / "home")] if request.param == "argument" else []
    where = tmp_path if request.param == "working folder" else Path("/")
    with subprocess.Popen(
        ["sh", "-c", "read line", "sh", *words], stdin=subprocess.PIPE, env=environment, cwd=where
    ) as it:
        yield it
        it.kill()


def test_a_process_is_found_until_it_ends(process: subprocess.Popen[bytes], tmp_path: Path) -> None:
    found = wait_until(lambda: leftovers([tmp_path]), what="it has started")
    assert len(found) == 1 and found[0].startswith(f"process {process.pid}: ")
    assert leftovers([tmp_path / "hom"]) == []
    process.kill()
    assert leftovers([tmp_path], patience=10) == []
