"""A real Chromium on a real service. Console errors and blocked content of any page fail the test that saw them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.fixtures import job_name
from tests.support.shown_service import ShownService, shown_service
from tests.support.tools import find_tool

__all__ = ["job_name"]

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="package")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShownService]:
    with shown_service(tmp_path_factory.mktemp("a home")) as service:
        yield service


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_tool("chromium"), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """A page of a browser that knows nothing yet; 1280 × 3000, so that long logs are in sight whole."""
    context = chromium.new_context(viewport={"width": 1280, "height": 3000})
    page = context.new_page()
    page.set_default_timeout(60_000)
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda said: troubles.append(said.text) if "Content Security Policy" in said.text else None)
    yield page
    context.close()
    assert not troubles
