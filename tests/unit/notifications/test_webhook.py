"""The POST itself, to a real server on this machine."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.support.ports import free_port
from tests.support.receivers import WebhookServer
from trainshed_service.notifications.messages import Place, sample
from trainshed_service.notifications.outcome import Outcome
from trainshed_service.notifications.webhook import MAX_REDIRECTS, WebhookChannel, check_webhook

MESSAGE = sample(Place("123456789012", "us-east-1"), 0.0, "t1")


async def send(url: str, *, any_address: bool = True, **options: Any) -> Outcome:
    channel = WebhookChannel(url, any_address=any_address, **options)
    try:
        return await channel.send(MESSAGE)
    finally:
        await channel.close()


async def test_it_posts_json_with_the_name_of_the_host_and_its_password() -> None:
    with WebhookServer() as server:
        url = f"http://user:pa55@localhost:{server.port}/a/b?c=d"
        assert (await send(url)).error is None
        assert server.paths == ["/a/b?c=d"]
        assert server.bodies[0]["detail-type"] == "Trainshed Notification Test"
        assert server.headers[0]["host"] == f"localhost:{server.port}"
        assert server.headers[0]["content-type"] == "application/json"
        assert server.headers[0]["authorization"] == "Basic dXNlcjpwYTU1"


@pytest.mark.parametrize(
    ("status", "headers", "wait"),
    [(500, {}, None), (429, {"retry-after": "90"}, 90.0), (302, {"location": "/x"}, None)],
)
async def test_what_is_no_success_is_a_failure(status: int, headers: dict[str, str], wait: float | None) -> None:
    with WebhookServer(lambda _: (status, headers)) as server:
        outcome = await send(server.url)
        assert outcome.error == f"the webhook answered {status}"
        assert outcome.retry_after == wait


async def test_redirects_keep_method_and_scheme_or_are_not_followed() -> None:
    answers = [(307, {"location": "/elsewhere"}), (204, {})]
    with WebhookServer(lambda number: answers[number - 1]) as server:
        assert (await send(server.url)).error is None
        assert server.paths == ["/hooks/s3cret-path", "/elsewhere"]
        assert server.bodies[0] == server.bodies[1]
    for location in ("https://127.0.0.1/", "ftp://127.0.0.1/x", "file:///etc/passwd"):
        with WebhookServer(lambda _, to=location: (308, {"location": to})) as server:  # type: ignore[misc]
            assert "another scheme" in ((await send(server.url)).error or "")
    with WebhookServer(lambda _: (307, {"location": "/round"})) as server:
        assert "more than" in ((await send(server.url)).error or "")
        assert len(server.bodies) == MAX_REDIRECTS + 1


async def test_a_redirect_into_the_network_is_judged_again() -> None:
    async def resolver(host: str, port: int, *, any_address: bool) -> list[str]:
        from trainshed_service.notifications.addresses import resolve

        return ["127.0.0.1"] if host == "public.example" else await resolve(host, port, any_address=any_address)

    with WebhookServer() as inside:
        with WebhookServer(lambda _: (307, {"location": f"http://127.0.0.1:{inside.port}/"})) as outside:
            outcome = await send(f"http://public.example:{outside.port}/", any_address=False, resolver=resolver)
        assert "not at a public address" in (outcome.error or "")
        assert inside.bodies == [] and len(outside.bodies) == 1


async def test_an_ordinary_users_webhook_does_not_reach_this_machine() -> None:
    with WebhookServer() as server:
        outcome = await send(server.url, any_address=False)
        assert "not at a public address" in (outcome.error or "")
        assert server.bodies == []


async def test_one_that_does_not_answer_and_one_that_is_not_there() -> None:
    done = threading.Event()

    def never(_: int) -> tuple[int, dict[str, str]]:
        done.wait(30)
        return 200, {}

    with WebhookServer(never) as server:
        outcome = await send(server.url, total_seconds=0.5)
        assert "took too long" in (outcome.error or "") or "no answer" in (outcome.error or "")
        done.set()
    outcome = await send(f"http://127.0.0.1:{free_port()}/s3cret")
    assert "cannot deliver" in (outcome.error or "") and "s3cret" not in (outcome.error or "")


@pytest.mark.parametrize("url", ["https://", "http:///x", "https://host:99999/", "http://[::1"])
def test_what_is_no_webhook_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="not a URL"):
        check_webhook(url)
