"""Nodes, warm pools and the queue in a real browser, on a service whose agent reports over the real protocol."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.test_dashboard import TIMEOUT
from tests.integration.core.driving import create, run_until, step_until, until_phase
from tests.integration.pools.test_life import until_pool, update, warm
from tests.support.api_process import ApiProcess
from tests.support.axe import check_accessibility
from tests.support.scripted_agent import ScriptedAgent
from tests.support.wait import wait_until
from trainshed_worker.protocol import Phase

pytestmark = pytest.mark.needs("chromium")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    api = ApiProcess(tmp_path_factory.mktemp("a home"))
    api.start()
    yield api
    api.kill()


@pytest.fixture(scope="module")
def agent(api: ApiProcess) -> Iterator[ScriptedAgent]:
    agent = ScriptedAgent(api.url, api.bootstrap.enrollment_token, slots=3)
    agent.enroll()
    agent.report().raise_for_status()
    yield agent
    agent.close()


def enter(page: Page, api: ApiProcess, path: str) -> None:
    page.goto(str(api.call("POST", "/v1/login-links").json()["url"]))
    page.wait_for_url("**/jobs")
    page.goto(api.url + path)


def seconds(text: str) -> int:
    """m:ss, or h:mm:ss."""
    total = 0
    for part in text.split(":"):
        total = total * 60 + int(part)
    return total


def test_a_warm_pool_counts_down_to_its_end(page: Page, api: ApiProcess, agent: ScriptedAgent) -> None:
    enter(page, api, "/pools")
    expect(page.get_by_text("No instance is kept warm now.")).to_be_visible(timeout=TIMEOUT)
    agent.exits = 0
    create(api, "short-lived", 2, **warm(2, 600))
    until_pool(api, [agent], "short-lived", "Available")
    left = page.locator(".pools .left")
    expect(left).to_be_visible(timeout=TIMEOUT)  # by itself
    expect(page.get_by_role("link", name="short-lived")).to_be_visible()
    first = wait_until(lambda: ":" in left.inner_text() and seconds(left.inner_text()), what="it counts")
    assert 0 < first <= 600
    wait_until(lambda: seconds(left.inner_text()) < first, what="it counts down")
    update(api, "short-lived", 12)
    wait_until(lambda: seconds(left.inner_text()) <= 12, what="the new end is shown")
    expect(page.get_by_text("No instance is kept warm now.")).to_be_visible(timeout=TIMEOUT)
    page.goto(api.url + "/nodes")
    expect(page.get_by_text("3 free")).to_be_visible(timeout=TIMEOUT)


def test_a_node_is_drained_and_taken_back_with_the_keyboard(page: Page, api: ApiProcess, agent: ScriptedAgent) -> None:
    enter(page, api, "/nodes")
    page.get_by_role("link", name="slot 2").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Drain this node")).to_be_hidden(timeout=TIMEOUT)
    page.locator("summary", has_text="Drain…").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Slot 2 free draining")).to_be_visible(timeout=TIMEOUT)
    expect(page.get_by_text("node.draining")).to_be_visible()
    page.get_by_role("button", name="Take jobs again").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Slot 2 free", exact=True)).to_be_visible(timeout=TIMEOUT)


def test_a_page_says_that_the_service_is_away_and_goes_on_by_itself(
    page: Page, api: ApiProcess, agent: ScriptedAgent
) -> None:
    enter(page, api, "/nodes")
    expect(page.get_by_role("link", name="slot 0")).to_be_visible(timeout=TIMEOUT)
    api.kill()
    expect(page.get_by_text("Trying again…")).to_be_visible(timeout=TIMEOUT)
    api.start()
    agent.report().raise_for_status()
    expect(page.get_by_text("Trying again…")).to_be_hidden(timeout=TIMEOUT)
    node = api.rest("/v1/nodes")["nodes"][0]["id"]
    assert api.call("POST", f"/v1/nodes/{node}/drain").status_code == 200
    expect(page.get_by_text("1 draining")).to_be_visible(timeout=TIMEOUT)
    assert api.call("POST", f"/v1/nodes/{node}/undrain").status_code == 200
    expect(page.get_by_text("1 draining")).to_be_hidden(timeout=TIMEOUT)


def test_each_view_is_accessible_and_fits_its_window(page: Page, api: ApiProcess, agent: ScriptedAgent) -> None:
    agent.exits = 0
    create(api, "seen-pool", 1, **warm(1, 3000))
    until_pool(api, [agent], "seen-pool", "Available")
    agent.exits = None
    create(api, "seen-running", 2)
    until_phase([agent], Phase.RUNNING, 2)
    create(api, f"seen-waiting-{'x' * 50}", 3)
    step_until([agent], lambda: api.rest("/v1/queue")["total"] == 1, what="one waits")
    node = api.rest("/v1/nodes")["nodes"][0]["id"]
    page.set_viewport_size({"width": 320, "height": 800})
    page.goto(api.url + "/login")
    check_accessibility(page)
    enter(page, api, "/jobs")
    paths = ["/jobs", "/jobs/seen-running", "/jobs/seen-running/log", "/jobs/seen-pool", "/nodes", f"/nodes/{node}"]
    for path in [*paths, "/pools", "/pools/seen-pool", "/queue", "/jobs/absent", "/new-job"]:
        page.goto(api.url + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 320, path
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            check_accessibility(page)
    expect(page.get_by_role("navigation", name="Main")).to_be_visible()
    api.client().stop_training_job(TrainingJobName="seen-running")
    run_until(api, [agent], "seen-running", "Stopped")
