"""The `needs(tool)` marker: a test whose system tool is absent is skipped, counted in one line for each tool that names
the Debian package. With TRAINSHED_REQUIRE_TOOLS=1 (the CI, which installs them first) it fails instead."""

from __future__ import annotations

import os

import pytest

from tests.support.tools import DEBIAN_PACKAGES, find_tool


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
