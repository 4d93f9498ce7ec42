"""The list of jobs in a real browser: filtering by hand, rows that come by themselves, stopping several."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.test_dashboard import TIMEOUT, enter
from tests.support.shown_service import ShownService

pytestmark = pytest.mark.needs("chromium")


def test_jobs_are_filtered_chosen_and_stopped_while_others_come(page: Page, shown: ShownService, job_name: str) -> None:
    create = shown.client("sagemaker").create_training_job
    for each in "ab":
        create(**shown.request(f"{job_name}-{each}", Tags=[{"Key": "sweep", "Value": job_name}]))
    create(**shown.request(f"{job_name}-z"))
    enter(page, shown, f"/jobs?q={job_name}")
    page.get_by_text("More filters").click()
    page.get_by_label("Tag: key or key=value").fill(f"sweep={job_name}")
    page.keyboard.press("Enter")
    page.wait_for_url("**tag=sweep*")
    assert "since=" not in page.url and "sort=" not in page.url
    names = page.locator("#jobs td.name")
    expect(names).to_have_count(2, timeout=TIMEOUT)
    page.get_by_label(f"Select {job_name}-a").check()
    create(**shown.request(f"{job_name}-c", Tags=[{"Key": "sweep", "Value": job_name}]))
    expect(names).to_have_count(3, timeout=TIMEOUT)
    expect(page.get_by_label(f"Select {job_name}-a")).to_be_checked()
    expect(page.get_by_text("1 selected")).to_be_visible(timeout=TIMEOUT)
    page.get_by_label("Select all that can be stopped").check()
    page.get_by_role("button", name="Stop selected…").click()
    expect(page.get_by_role("heading", name="Stop 3 jobs?")).to_be_visible(timeout=TIMEOUT)
    page.get_by_role("button", name="Stop 3 jobs").click()
    page.wait_for_url("**/jobs?**")
    expect(page.locator("#jobs").get_by_text("Stopped", exact=True)).to_have_count(3, timeout=TIMEOUT)
    described = shown.client("sagemaker").describe_training_job(TrainingJobName=f"{job_name}-z")
    assert described["TrainingJobStatus"] == "InProgress"
