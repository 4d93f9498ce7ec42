"""Logging in and out over real HTTP, and what keeps others out."""

from __future__ import annotations

from http.cookiejar import Cookie
from pathlib import Path

import httpx
import pytest

from tests.support.shown_service import ShownService, csrf_of, log_in, shown_service
from trainshed_service.dashboard.limits import PER_ADDRESS

PAGES = ["/jobs", "/nodes", "/jobs/a-job", "/jobs/a-job/log", "/jobs?status=failed&q=a%26b"]


def session_cookie(client: httpx.Client) -> Cookie:
    return next(cookie for cookie in client.cookies.jar if cookie.name.startswith("trainshed-session-"))


@pytest.mark.parametrize("path", PAGES)
def test_nobody_sees_a_page_and_comes_back_to_it_after_the_login(
    shown: ShownService, anonymous: httpx.Client, path: str
) -> None:
    answer = anonymous.get(path)
    assert answer.status_code == 303 and answer.headers["location"].startswith("/login?next=")
    form = anonymous.get(answer.headers["location"])
    target = httpx.URL(answer.headers["location"]).params["next"]
    admin = shown.bootstrap.admin
    fields = {"csrf": csrf_of(form.text), "next": target, "key": admin.access_key_id, "secret": admin.secret_access_key}
    inside = anonymous.post("/login", data=fields)
    assert inside.status_code == 303 and inside.headers["location"] == path


def test_a_script_of_a_page_is_told_so(anonymous: httpx.Client) -> None:
    assert anonymous.get("/jobs", headers={"x-live": "1"}).status_code == 401


def test_key_and_secret_or_the_token_log_in(shown: ShownService) -> None:
    admin = shown.bootstrap.admin
    for fields in ({"key": admin.access_key_id, "secret": admin.secret_access_key}, {"token": f" {shown.token} "}):
        with shown.browser() as client:
            answer = log_in(client, **fields)
            assert (answer.status_code, answer.headers["location"]) == (303, "/jobs")
            assert client.get("/jobs").status_code == 200
            assert client.get("/login").headers["location"] == "/jobs"


def test_the_cookie_is_for_this_server_alone(person: httpx.Client, shown: ShownService) -> None:
    with shown.browser() as client:
        set_cookie = log_in(client, token=shown.token).headers["set-cookie"].lower()
    assert "httponly" in set_cookie and "samesite=lax" in set_cookie and "path=/" in set_cookie
    assert "max-age=43200" in set_cookie and "domain" not in set_cookie
    cookie = session_cookie(person)
    assert str(shown.settings.port) in cookie.name and cookie.value is not None and len(cookie.value) >= 40
    assert person.get("/v1/whoami", headers={"Authorization": f"Bearer {cookie.value}"}).status_code == 401


@pytest.mark.parametrize(
    "fields",
    [
        {"key": "AKIAUNKNOWN", "secret": "x"},
        {"key": "", "secret": ""},
        {"token": "ts_wrong"},
        {"token": "\udcff".encode("utf-8", "surrogateescape").decode("latin-1")},
        {"once": "wrong"},
    ],
)
def test_what_is_wrong_is_refused_without_a_session(tmp_path: Path, fields: dict[str, str]) -> None:
    with shown_service(tmp_path / "home") as service, service.browser() as client:
        answer = log_in(client, **fields)
        assert answer.status_code == 401 and 'role="alert"' in answer.text
        assert not any("session" in cookie.name for cookie in client.cookies.jar)


def test_a_wrong_secret_tells_no_more_than_an_unknown_key_and_guessing_is_slow(tmp_path: Path) -> None:
    with shown_service(tmp_path / "home") as service, service.browser() as client:
        admin = service.bootstrap.admin
        unknown = log_in(client, key="AKIAUNKNOWN", secret=admin.secret_access_key)
        wrong = log_in(client, key=admin.access_key_id, secret="x")
        assert unknown.status_code == wrong.status_code == 401 and unknown.text == wrong.text
        for _ in range(PER_ADDRESS - 2):
            assert log_in(client, key=admin.access_key_id, secret="x").status_code == 401
        right = log_in(client, key=admin.access_key_id, secret=admin.secret_access_key)
        assert right.status_code == 429 and 1 <= int(right.headers["retry-after"]) <= 61
        assert admin.secret_access_key not in (service.settings.home / "api.log").read_text()


def test_a_link_logs_in_once_and_opening_it_alone_uses_nothing_up(shown: ShownService) -> None:
    url = shown.login_link()
    with shown.browser() as preview, shown.browser() as first, shown.browser() as second:
        assert preview.get(url).status_code == preview.head(url).status_code == 200
        once = httpx.URL(url).params["once"]
        sent = {"csrf": csrf_of(first.get(url).text), "once": once}
        assert first.post("/login", data=sent).headers["location"] == "/jobs"
        assert first.get("/jobs").status_code == 200
        again = log_in(second, once=once)
        assert again.status_code == 401 and "used already" in again.text


def test_only_those_who_are_known_get_a_link(anonymous: httpx.Client, person: httpx.Client) -> None:
    assert anonymous.post("/v1/login-links").status_code == 401
    assert person.post("/v1/login-links").status_code == 401  # a cookie is for reading


def test_logging_out_ends_the_session_on_the_server(shown: ShownService) -> None:
    with shown.logged_in() as client, shown.browser() as thief:
        cookie = session_cookie(client)
        thief.cookies.set(cookie.name, cookie.value or "")
        page = client.get("/jobs").text
        assert thief.get("/jobs").status_code == 200
        answer = client.post("/logout", data={"csrf": csrf_of(page)})
        assert (answer.status_code, answer.headers["location"]) == (303, "/login")
        assert thief.get("/jobs").status_code == 303 and client.get("/jobs").status_code == 303


def test_forms_need_the_token_of_this_very_session(shown: ShownService, person: httpx.Client, job_name: str) -> None:
    shown.place(job_name)
    stop = f"/jobs/{job_name}/stop"
    right = csrf_of(person.get(f"/jobs/{job_name}").text)
    with shown.logged_in() as other:
        foreign = csrf_of(other.get("/jobs").text)
    for given in ({}, {"csrf": ""}, {"csrf": "x"}, {"csrf": foreign}):
        assert person.post(stop, data=given or {"a": "b"}).status_code == 403
    for headers in (
        {"origin": "https://evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        assert person.post(stop, data={"csrf": right}, headers=headers).status_code == 403
    describe = shown.client("sagemaker").describe_training_job
    assert describe(TrainingJobName=job_name)["TrainingJobStatus"] == "InProgress"
    own = {"origin": shown.url, "sec-fetch-site": "same-origin"}
    answer = person.post(stop, data={"csrf": right}, headers=own)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{job_name}")
    assert describe(TrainingJobName=job_name)["TrainingJobStatus"] == "Stopping"


def test_a_login_form_of_another_browser_is_refused(shown: ShownService, anonymous: httpx.Client) -> None:
    with shown.browser() as other:
        foreign = csrf_of(other.get("/login").text)
    assert anonymous.post("/login", data={"csrf": foreign, "token": shown.token}).status_code == 403
    anonymous.get("/login")
    assert anonymous.post("/login", data={"csrf": foreign, "token": shown.token}).status_code == 403


def test_a_form_has_a_limit(anonymous: httpx.Client) -> None:
    assert anonymous.post("/login", data={"token": "x" * 70_000}).status_code == 413


def test_the_cookie_reads_rest_and_changes_nothing(person: httpx.Client, shown: ShownService, job_name: str) -> None:
    shown.place(job_name)
    assert person.get("/v1/whoami").json()["name"] == "admin"
    assert person.get(f"/v1/training-jobs/{job_name}/logs").status_code == 200
    assert person.get("/v1/whoami", headers={"sec-fetch-site": "cross-site"}).status_code == 401
    assert person.post(f"/v1/training-jobs/{job_name}/stop", json={}).status_code == 401
    assert person.delete(f"/v1/training-jobs/{job_name}").status_code == 401


def test_a_session_outlives_a_restart_of_the_service(tmp_path: Path) -> None:
    with shown_service(tmp_path / "home") as service, service.logged_in() as client:
        csrf = csrf_of(client.get("/jobs").text)
        service.kill("api")
        service.start("api")
        assert csrf_of(client.get("/jobs").text) == csrf
