"""What a person does: log in, find a job, follow its log, stop it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.support.shown_service import ShownService
from tests.support.wait import wait_until

pytestmark = pytest.mark.needs("chromium")
TIMEOUT = 60_000
EVIL = "<img src=x onerror=document.title=1><script>document.title=2</script>"


def rows(page: Page) -> list[str]:
    return page.locator(".row .text").all_text_contents()


def enter(page: Page, shown: ShownService, path: str = "/jobs") -> None:
    page.goto(shown.login_link())
    page.wait_for_url("**/jobs")
    if path != "/jobs":
        page.goto(shown.url + path)


def test_login_leads_back_and_a_new_job_appears_by_itself(page: Page, shown: ShownService, job_name: str) -> None:
    page.goto(f"{shown.url}/jobs?q={job_name}")
    page.get_by_label("Access key ID").fill(shown.bootstrap.admin.access_key_id)
    page.get_by_label("Secret access key").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("not known", timeout=TIMEOUT)
    page.get_by_label("Access key ID").fill(shown.bootstrap.admin.access_key_id)
    page.get_by_label("Secret access key").fill(shown.bootstrap.admin.secret_access_key)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible(timeout=TIMEOUT)
    assert page.url.endswith(f"/jobs?q={job_name}")
    expect(page.get_by_text("No job", exact=False).first).to_be_visible(timeout=TIMEOUT)
    shown.place(job_name)
    expect(page.get_by_role("link", name=job_name)).to_be_visible(timeout=TIMEOUT)
    page.get_by_role("link", name=job_name).click()
    expect(page.get_by_role("heading", name=job_name)).to_contain_text("Training", timeout=TIMEOUT)


def test_a_log_goes_on_over_a_restart_without_gap_or_double(page: Page, shown: ShownService, job_name: str) -> None:
    shown.place(job_name, 1)
    shown.ship(job_name, "algo-1", [f"line {seq}" for seq in range(40)])
    enter(page, shown, f"/jobs/{job_name}/log")
    expect(page.get_by_text("live · 40 lines")).to_be_visible(timeout=TIMEOUT)
    shown.ship(job_name, "algo-1", [f"line {seq}" for seq in range(40, 50)], 40)
    expect(page.get_by_text("live · 50 lines")).to_be_visible(timeout=TIMEOUT)
    shown.kill("api")
    shown.ship(job_name, "algo-1", [f"line {seq}" for seq in range(50, 80)], 50)
    expect(page.get_by_text("connection lost")).to_be_visible(timeout=TIMEOUT)
    shown.start("api")
    # The job has no agent, so the service that takes it up may end it: then its state stands there instead of "live".
    expect(page.get_by_text("80 lines")).to_be_visible(timeout=TIMEOUT)
    wait_until(lambda: len(rows(page)) >= 80, timeout=30, what="all lines are in sight")
    assert rows(page) == [f"line {seq}" for seq in range(80)]


def test_hosts_together_apart_and_filtered(page: Page, shown: ShownService, job_name: str) -> None:
    shown.place(job_name)
    shown.ship(job_name, "algo-1", ["one apple", EVIL, "\x1b[31mred\x1b[0m", "10%\r50%\r100%"])
    shown.ship(job_name, "algo-2", ["two apples", "two pears"])
    enter(page, shown, f"/jobs/{job_name}/log")
    expect(page.get_by_text("live · 6 lines")).to_be_visible(timeout=TIMEOUT)
    wait_until(lambda: len(rows(page)) == 6, what="six rows")
    assert set(rows(page)) == {"one apple", EVIL, "red", "100%", "two apples", "two pears"}
    assert page.title() == f"{job_name} · log · Trainshed"
    page.get_by_role("searchbox", name="Filter").fill("APPLE")
    wait_until(lambda: sorted(rows(page)) == ["one apple", "two apples"], what="the filter holds")
    page.get_by_role("searchbox", name="Filter").fill("")
    page.get_by_role("combobox", name="Hosts").select_option("apart")
    pane = page.get_by_role("region", name="Lines of algo-2").locator(".row .text")
    wait_until(lambda: pane.all_text_contents() == ["two apples", "two pears"], what="algo-2 apart")
    page.get_by_role("combobox", name="Hosts").select_option("algo-1")
    wait_until(lambda: rows(page) == ["one apple", EVIL, "red", "100%"], what="algo-1 only")


def test_scrolling_up_pauses_and_only_what_is_in_sight_is_in_the_page(
    page: Page, shown: ShownService, job_name: str
) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    shown.place(job_name, 1)
    shown.ship(job_name, "algo-1", [f"line {seq}" for seq in range(3_000)])
    enter(page, shown, f"/jobs/{job_name}/log")
    expect(page.get_by_text("live · 3,000 lines")).to_be_visible(timeout=TIMEOUT)
    wait_until(lambda: rows(page)[-1:] == ["line 2999"], what="the end is in sight")
    assert len(rows(page)) < 100
    wrap = page.get_by_label("wrap")
    expect(wrap).to_be_hidden()
    page.get_by_role("button", name="Options").click()
    expect(wrap).to_be_visible()
    page.get_by_role("button", name="Options").click()
    expect(wrap).to_be_hidden()
    button = page.get_by_role("button", name="Follow")
    expect(button).to_have_attribute("aria-pressed", "true")
    page.locator(".scroller").evaluate("node => { node.scrollTop = 9000 }")
    expect(button).to_have_attribute("aria-pressed", "false", timeout=TIMEOUT)
    shown.ship(job_name, "algo-1", ["line 3000"], 3_000)
    expect(page.get_by_text("live · 3,001 lines")).to_be_visible(timeout=TIMEOUT)
    wait_until(lambda: "line 505" in rows(page), what="the place that was scrolled to")
    assert "line 3000" not in rows(page)
    button.click()
    wait_until(lambda: rows(page)[-1:] == ["line 3000"], what="following again")


def test_stopping_asks_first(page: Page, shown: ShownService, job_name: str) -> None:
    shown.place(job_name, 1)
    enter(page, shown, f"/jobs/{job_name}")
    expect(page.get_by_role("button", name="Stop the job")).to_be_hidden()
    page.get_by_text("Stop…").click()
    page.get_by_role("button", name="Stop the job").click()
    expect(page.get_by_text(re.compile("Stopp(ing|ed) on request"))).to_be_visible(timeout=TIMEOUT)
    described = shown.client("sagemaker").describe_training_job(TrainingJobName=job_name)
    assert described["TrainingJobStatus"] in ("Stopping", "Stopped")


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_no_page_is_wider_than_its_window(page: Page, shown: ShownService, job_name: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    name = f"{job_name}-{'x' * 62}"[:63]
    shown.place(name, 2)
    enter(page, shown)
    for path in ("/jobs", "/nodes", f"/jobs/{name}", f"/jobs/{name}/log", "/jobs/absent"):
        page.goto(shown.url + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
