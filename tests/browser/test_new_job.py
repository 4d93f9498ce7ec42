"""A job is written in the form, seen in the text, checked while it is written, and submitted."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Page, expect

from tests.browser.test_dashboard import TIMEOUT, enter
from tests.support.shown_service import ShownService

pytestmark = pytest.mark.needs("chromium")


def test_form_and_text_are_one_and_a_job_is_submitted(page: Page, shown: ShownService, job_name: str) -> None:
    enter(page, shown, "/new-job")
    verdict = page.locator("#verdict")
    expect(verdict).to_contain_text("Give the job a name", timeout=TIMEOUT)
    page.get_by_label("Name", exact=True).fill(job_name)
    page.get_by_label("Instances").fill("2")
    page.get_by_label("Hyperparameters").fill("lr = 0.1\nname = a = b")
    page.get_by_label("Inputs").fill("train = s3://bucket/train")
    spec = page.get_by_role("textbox", name="JSON")
    request = json.loads(spec.input_value())
    assert request["TrainingJobName"] == job_name and request["ResourceConfig"]["InstanceCount"] == 2
    assert request["HyperParameters"] == {"lr": "0.1", "name": "a = b"}
    assert request["InputDataConfig"][0]["DataSource"]["S3DataSource"]["S3Uri"] == "s3://bucket/train"
    del request["InputDataConfig"]  # nobody answers for that bucket here
    request["StoppingCondition"]["MaxRuntimeInSeconds"] = 86_400
    spec.fill(json.dumps(request))
    expect(page.get_by_label("Inputs")).to_have_value("")
    expect(page.get_by_label("At most (seconds)")).to_have_value("86400")
    expect(verdict).to_contain_text("Valid. It would wait", timeout=TIMEOUT)
    spec.fill("{}")
    expect(verdict).to_contain_text("It would be refused", timeout=TIMEOUT)
    spec.fill("{")
    expect(verdict).to_contain_text("This is no JSON yet", timeout=TIMEOUT)
    expect(spec).to_have_attribute("aria-invalid", "true")
    spec.fill(json.dumps(request))
    page.get_by_role("button", name="Submit the job").click()
    page.wait_for_url(f"**/jobs/{job_name}")
    described = shown.client("sagemaker").describe_training_job(TrainingJobName=job_name)
    assert described["HyperParameters"] == {"lr": "0.1", "name": "a = b"}
