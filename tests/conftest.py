"""What holds for every test.

* The `needs(tool)` marker: a test whose system tool is absent is skipped, counted in one line for each tool that names
  the Debian package. With TRAINSHED_REQUIRE_TOOLS=1 (the CI, which installs them first) it fails instead.
* A run has a TMPDIR of its own, and fails where its tests leave a process or a mount behind.
* Property tests have no deadline for one example: how long it takes depends on what else the machine does.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import hypothesis
import pytest

from tests.support.databases import end_database_server
from tests.support.depth import examples
from tests.support.forks import end_fork_server
from tests.support.leftovers import leftovers
from tests.support.ranks import end_rank_parent
from tests.support.spreading import spread
from tests.support.tools import DEBIAN_PACKAGES, find_tool

_PATIENCE = 10.0
_RUN_FOLDER = pytest.StashKey[Path]()
_LEFT = pytest.StashKey[list[str]]()

hypothesis.settings.register_profile("trainshed", deadline=None, max_examples=examples(50))
hypothesis.settings.load_profile("trainshed")


def _is_controller(config: pytest.Config) -> bool:
    return not hasattr(config, "workerinput")


def pytest_configure(config: pytest.Config) -> None:
    if not _is_controller(config):
        return
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # pytest's own folders stay where they were
    folder = Path(tempfile.mkdtemp(prefix="ts-"))  # short: there are sockets below it
    folder.chmod(0o711)  # jobs with a user of their own pass through
    os.environ["TMPDIR"], tempfile.tempdir = str(folder), None
    config.stash[_RUN_FOLDER] = folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    items[:] = spread(items, lambda item: item.nodeid, workers)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """After the workers' end. What is left is a fault of a test, or of ours, even where all passed."""
    end_fork_server()
    end_database_server()
    end_rank_parent()
    config = session.config
    folder = config.stash.get(_RUN_FOLDER, None)
    if folder is None:
        return
    base = config._tmp_path_factory._basetemp  # type: ignore[attr-defined]  # None where no test asked for it
    config.stash[_LEFT] = leftovers([folder, *([base] if base else [])], _PATIENCE)
    if config.stash[_LEFT] and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if not config.stash[_LEFT]:
        shutil.rmtree(folder, ignore_errors=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    left = config.stash.get(_LEFT, [])
    if left:
        terminalreporter.section("left behind by the tests", red=True)
        for line in left:
            terminalreporter.line(line)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        for tool in marker.args:
            if tool not in DEBIAN_PACKAGES:
                raise pytest.UsageError(f"{item.nodeid}: tests/support/tools.py names no Debian package for {tool!r}")
            if find_tool(tool) is not None:
                continue
            reason = f"needs {tool}, which is absent; Debian package: {DEBIAN_PACKAGES[tool]}"
            if os.environ.get("TRAINSHED_REQUIRE_TOOLS") == "1":
                pytest.fail(reason, pytrace=False)
            pytest.skip(reason)
