"""What the pages show, over real HTTP, and that nothing of a user's text becomes markup."""

from __future__ import annotations

import re
import time
from pathlib import Path

import httpx
import pytest

from tests.support.shown_service import ShownService, shown_service
from trainshed_service.dashboard.reading import PAGE

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


def test_every_answer_has_the_headers_that_keep_a_browser_safe(
    person: httpx.Client, anonymous: httpx.Client, shown: ShownService, job_name: str
) -> None:
    shown.place(job_name)
    seen = [anonymous.get("/login"), anonymous.get("/jobs"), anonymous.get("/static/x/style.css")]
    seen += [person.get(path) for path in ("/", "/jobs", "/nodes", f"/jobs/{job_name}", "/jobs/absent", "/static/x/y")]
    seen.append(person.post(f"/jobs/{job_name}/stop", data={"a": "b"}))
    assert {answer.status_code for answer in seen} == {200, 303, 403, 404}
    for answer in seen:
        policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
        assert policy == {
            "default-src": "'none'",
            "script-src": "'self'",
            "style-src": "'self'",
            "connect-src": "'self'",
            "img-src": "'self' data:",
            "frame-ancestors": "'none'",
            "base-uri": "'none'",
            "form-action": "'self'",
        }
        assert answer.headers["x-content-type-options"] == "nosniff" and answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_pages_hold_no_inline_script_or_style(person: httpx.Client, shown: ShownService, job_name: str) -> None:
    shown.place(job_name)
    for path in ("/jobs", "/nodes", f"/jobs/{job_name}", f"/jobs/{job_name}/log", "/login?once=x"):
        text = person.get(path).text
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", text), path
        assert all('src="/static/' in tag for tag in re.findall(r"<script[^>]*>", text)), path
        assert not re.search(r"https?://(?!127\.0\.0\.1)", text), path


def test_text_of_users_is_never_markup(person: httpx.Client, shown: ShownService, job_name: str) -> None:
    request = shown.request(
        job_name,
        HyperParameters={"evil": EVIL, "</pre><script>": "x"},
        Environment={"EVIL": EVIL},
        Tags=[{"Key": "k", "Value": "v"}],
    )
    request["AlgorithmSpecification"]["MetricDefinitions"] = [{"Name": EVIL, "Regex": f"{EVIL}=([0-9.]+)"}]
    shown.client("sagemaker").create_training_job(**request)
    pages = [person.get(f"/jobs/{job_name}"), person.get("/jobs", params={"q": EVIL, "status": EVIL})]
    pages.append(person.get("/login", params={"next": EVIL, "once": EVIL}))
    for page in pages:
        assert page.status_code == 200
        assert "<script>" not in page.text and "<img" not in page.text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in pages[0].text


def test_a_metric_with_an_evil_name_is_only_text(person: httpx.Client, shown: ShownService, job_name: str) -> None:
    shown.place(job_name)
    now = int(time.time() * 1000)
    points = [{"name": EVIL, "value": 1.5, "timestamp_ms": now + seq, "seq": seq} for seq in range(3)]
    shown.ship_points(job_name, "algo-1", points)
    page = person.get(f"/jobs/{job_name}").text
    assert "<script>" not in page and "<img" not in page
    assert "&lt;script&gt;" in page and "last 1.5, from 1.5 to 1.5, 3 values" in page


def test_a_job_is_told_in_words(person: httpx.Client, shown: ShownService, job_name: str) -> None:
    shown.place(job_name)
    page = person.get(f"/jobs/{job_name}").text
    for words in ("Training runs on every instance", "ml.c5.xlarge × 2", "algo-2", "Stop the job", "trainshed logs"):
        assert words in page
    shown.client("sagemaker").stop_training_job(TrainingJobName=job_name)
    page = person.get(f"/jobs/{job_name}").text
    assert "Stopping on request" in page, re.findall(r'<p class="reason[^<]*<', page)
    assert "Stop the job" not in page


def test_a_waiting_job_says_why_and_can_be_stopped(person: httpx.Client, shown: ShownService, job_name: str) -> None:
    shown.client("sagemaker").create_training_job(**shown.request(job_name, 2))
    page = person.get(f"/jobs/{job_name}").text
    listed = person.get("/jobs", params={"q": job_name}).text
    waiting = re.search(r'<p class="reason wait">([^<]+)</p>', page)
    assert waiting and "ml.c5.xlarge" in waiting[1] and waiting[1] in listed
    assert "Nothing has been timed" not in page and "Place in the queue" in page


def test_filters_are_in_the_address(person: httpx.Client, shown: ShownService, job_name: str) -> None:
    shown.client("sagemaker").create_training_job(**shown.request(f"{job_name}-w"))
    shown.place(f"{job_name}-t")
    both = {"status": ["waiting", "running"], "q": job_name.upper()}
    assert _names(person, both) == {f"{job_name}-w", f"{job_name}-t"}
    assert _names(person, {"status": "waiting", "q": job_name}) == {f"{job_name}-w"}
    assert _names(person, {"status": "running", "q": job_name}) == {f"{job_name}-t"}
    assert _names(person, {"status": "failed", "q": job_name}) == set()
    assert "No job matches" in person.get("/jobs", params={"q": "no-such-job"}).text
    assert _names(person, {"q": "%"}) == set()


def test_pages_of_the_list_hold_every_job_once(tmp_path: Path) -> None:
    with shown_service(tmp_path / "home") as service, service.logged_in() as client:
        assert "No job yet" in client.get("/jobs").text
        sagemaker = service.client("sagemaker")
        wanted = [f"job-{index:03}" for index in range(PAGE + 7)]
        for name in wanted:
            sagemaker.create_training_job(**service.request(name))
        first = client.get("/jobs").text
        older = re.search(r'<a href="([^"]+)" rel="next">', first)
        assert older is not None
        sagemaker.create_training_job(**service.request("came-in-between"))
        second = client.get(older[1].replace("&amp;", "&")).text
        assert 'rel="next"' not in second and "First page" in second
        seen = _listed(first) + _listed(second)
        assert seen == wanted[::-1]
        assert _listed(client.get("/jobs?before=nonsense").text)[0] == "came-in-between"


def test_polling_an_unchanged_page_costs_nothing_to_send(
    person: httpx.Client, shown: ShownService, job_name: str
) -> None:
    shown.client("sagemaker").create_training_job(**shown.request(job_name))
    address = f"/jobs?q={job_name}"
    tag = person.get(address).headers["etag"]
    same = person.get(address, headers={"if-none-match": tag})
    assert same.status_code == 304 and same.content == b""
    shown.client("sagemaker").stop_training_job(TrainingJobName=job_name)
    changed = person.get(address, headers={"if-none-match": tag})
    assert changed.status_code == 200 and "Stopped on request" in changed.text


@pytest.mark.parametrize(
    "path", ["/jobs/no-such-job", "/jobs/no-such-job/log", "/static/x/absent.js", "/static/x/..%2fapp.py"]
)
def test_what_is_not_there_is_said_so(person: httpx.Client, path: str) -> None:
    assert person.get(path).status_code == 404


def test_the_page_of_an_error_leads_on_for_who_is_known_and_names_nobody_else(
    person: httpx.Client, anonymous: httpx.Client
) -> None:
    known = person.get("/jobs/no-such-job")
    assert known.status_code == 404 and 'aria-label="Main"' in known.text and "Log out" in known.text
    unknown = anonymous.get("/no-such-page")
    assert "Log out" not in unknown.text


def test_static_files_are_kept_under_their_version(person: httpx.Client) -> None:
    page = person.get("/jobs").text
    addresses = set(re.findall(r'"(/static/[^"]+)"', page))
    assert any(each.endswith("style.css") for each in addresses) and any(each.endswith(".js") for each in addresses)
    for address in addresses:
        answer = person.get(address)
        assert answer.status_code == 200 and "immutable" in answer.headers["cache-control"]
    assert person.get("/static/old/live.js").headers["cache-control"] == "no-cache"
    assert person.get("/static/old/live.js").headers["content-type"] == "text/javascript; charset=utf-8"


def test_nodes_show_what_is_on_them(person: httpx.Client, shown: ShownService, job_name: str) -> None:
    shown.place(job_name, 1)
    page = person.get("/nodes").text
    assert f'<a href="/jobs/{job_name}">' in page and "in use" in page and "algo-1" in page


def _names(client: httpx.Client, params: dict[str, str | list[str]]) -> set[str]:
    return set(_listed(client.get("/jobs", params=params).text))


def _listed(page: str) -> list[str]:
    return re.findall(r'class="name"><a href="/jobs/([^"]+)">', page)
