"""The log in a real browser: windows of a long one, filters, errors, links to lines, and what a terminal shows."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.test_dashboard import TIMEOUT, enter, rows
from tests.support.shown_service import ShownService
from tests.support.wait import wait_until

pytestmark = pytest.mark.needs("chromium")
LONG = 6_000


@pytest.fixture
def long_log(page: Page, shown: ShownService, job_name: str) -> str:
    """The page of a log of `LONG` lines, one of which is an error."""
    page.set_viewport_size({"width": 1280, "height": 800})
    shown.place(job_name, 1)
    texts = [f"line {seq}" for seq in range(LONG)]
    texts[1_234] = "ValueError: here it broke"
    for first in range(0, LONG, 3_000):
        shown.ship(job_name, "algo-1", texts[first : first + 3_000], first)
    enter(page, shown, f"/jobs/{job_name}/log")
    expect(page.get_by_text(f"live · {LONG:,} lines")).to_be_visible(timeout=TIMEOUT)
    return job_name


def test_errors_links_and_filters_lead_to_their_lines(page: Page, shown: ShownService, long_log: str) -> None:
    wait_until(lambda: rows(page)[-1:] == [f"line {LONG - 1}"], what="the end is in sight")
    page.get_by_role("button", name="First error").click()
    target = page.locator(".row.target .text")
    expect(target).to_have_text("ValueError: here it broke", timeout=TIMEOUT)
    expect(page.get_by_role("button", name="Follow")).to_have_attribute("aria-pressed", "false")
    address = page.url
    assert address.endswith(":1235")
    shown.ship(long_log, "algo-1", ["the newest"], LONG)
    expect(page.get_by_text(f"live · {LONG + 1:,} lines")).to_be_visible(timeout=TIMEOUT)
    page.goto("about:blank")
    page.goto(address)
    expect(target).to_have_text("ValueError: here it broke", timeout=TIMEOUT)
    expect(page.locator(".row.target .n")).to_have_text("1235")
    page.get_by_role("combobox", name="Around").select_option("2")
    page.get_by_label("regex").check()
    page.get_by_role("searchbox", name="Filter").fill(r"^line 20\d\d$")
    expect(page.get_by_text("100 matches")).to_be_visible(timeout=TIMEOUT)
    page.locator(".scroller").evaluate("node => { node.scrollTop = 0 }")
    wait_until(lambda: rows(page)[:3] == ["line 1998", "line 1999", "line 2000"], what="with two lines around")
    page.get_by_role("searchbox", name="Filter").fill("(")
    expect(page.get_by_text("This is no regular expression")).to_be_visible(timeout=TIMEOUT)
    page.get_by_role("searchbox", name="Filter").fill("newest$|newer$")
    wait_until(lambda: rows(page)[-1:] == ["the newest"], what="what came later is found")
    shown.ship(long_log, "algo-1", ["the newer"], LONG + 1)
    wait_until(lambda: rows(page)[-1:] == ["the newer"], what="what comes is found, too")


def test_scrolling_far_fetches_what_comes_into_sight(page: Page, long_log: str) -> None:
    scroller = page.locator(".scroller")
    scroller.evaluate("node => { node.scrollTop = 0 }")
    wait_until(lambda: rows(page)[:1] == ["line 0"], what="the first line")
    scroller.evaluate("node => { node.scrollTop = 3000 * 18 }")
    wait_until(lambda: "line 3000" in rows(page), what="a line in the middle")
    assert len(rows(page)) < 120
    page.get_by_label("wrap").check()
    scroller.evaluate("node => { node.scrollTop = node.scrollHeight }")
    wait_until(lambda: rows(page)[-1:] == [f"line {LONG - 1}"], what="the last line, wrapped")


def test_colours_and_progress_bars_are_as_in_a_terminal(page: Page, shown: ShownService, job_name: str) -> None:
    shown.place(job_name, 1)
    texts = [
        "\x1b[1;31mbold red\x1b[0m and plain",
        "  0%|   \r 50%|#  \r100%|###",
        "long text\rshort",
        "gone\r\x1b[Kkept",
        "\x1b[38;2;10;200;30mrgb\x1b[m <b>no markup</b>",
        "\x1b]8;;https://evil.example\x07link\x1b]8;;\x07",
    ]
    shown.ship(job_name, "algo-1", texts)
    enter(page, shown, f"/jobs/{job_name}/log")
    wait_until(lambda: len(rows(page)) == len(texts), what="all rows")
    assert rows(page) == ["bold red and plain", "100%|###", "shorttext", "kept", "rgb <b>no markup</b>", "link"]
    red = page.locator(".row .fg-1.t-bold")
    assert red.text_content() == "bold red" and page.locator(".row .text a, .row .text b").count() == 0
    colour = page.get_by_text("rgb", exact=True).evaluate("node => getComputedStyle(node).color")
    assert colour == "rgb(10, 200, 30)"
