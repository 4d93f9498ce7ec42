"""axe-core in the page: what keeps people out who do not see, hear or use a mouse."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

_AXE = Axe()
_FAILING = ("serious", "critical")


def check_accessibility(page: Page) -> None:
    """AssertionError that names each serious or critical violation and the elements that it is about."""
    found = _AXE.run(page).response["violations"]
    scheme = "dark" if page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") else "light"
    told = [
        f"{each['impact']}: {each['id']}: {each['help']}: "
        + "; ".join(
            f"{node['html'][:160]} ({node['failureSummary'].splitlines()[1].strip()})" for node in each["nodes"][:5]
        )
        for each in found
        if each["impact"] in _FAILING
    ]
    assert not told, f"{page.url} ({scheme}): " + "\n".join(told)
