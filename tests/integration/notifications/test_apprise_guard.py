"""The helper process: what it delivers, what it forbids itself for ordinary users, and how it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.receivers import MailServer, WebhookServer
from trainshed_service.notifications.apprise_process import AppriseChannel
from trainshed_service.notifications.messages import Place, sample
from trainshed_service.notifications.outcome import Outcome

MESSAGE = sample(Place("123456789012", "us-east-1"), 0.0, "t1")


async def send(url: str, *, any_address: bool) -> Outcome:
    channel = AppriseChannel(url, any_address=any_address, trusted=any_address)
    try:
        return await channel.send(MESSAGE)
    finally:
        await channel.close()


async def test_one_helper_sends_mail_after_mail_and_says_to_whom() -> None:
    with MailServer() as post:
        channel = AppriseChannel(post.url, any_address=True, trusted=True)
        try:
            assert await channel.check() is None
            assert channel.recipients == ["anna@example.org"]
            for _ in range(2):
                assert (await channel.send(MESSAGE)).error is None
        finally:
            await channel.close()
        assert [str(mail["subject"]) for mail in post.mails] == ["Trainshed: a test"] * 2
        assert "This is a test." in post.texts()[0]


async def test_ordinary_users_do_not_reach_this_machine_through_it() -> None:
    with MailServer() as post, WebhookServer() as inside:
        for url in (post.url, f"json://127.0.0.1:{inside.port}/s3cret", f"json://localhost:{inside.port}/s3cret"):
            outcome = await send(url, any_address=False)
            assert outcome.error is not None and "s3cret" not in outcome.error
        assert post.mails == [] and inside.bodies == []
        assert (await send(f"json://127.0.0.1:{inside.port}/x", any_address=True)).error is None
        assert len(inside.bodies) == 1


GUARDED = """
import socket, subprocess, sys
from trainshed_service.notifications.apprise_guard import guard
guard(any_address=sys.argv[1] == "any")
import certifi, ssl
ssl.create_default_context(cafile=certifi.where())
def tried(what):
    try:
        what()
    except PermissionError:
        return "forbidden"
    except OSError as error:
        return "tried"
    return "done"
tcp = lambda: socket.create_connection(("127.0.0.1", 9), 1)
print(
    tried(tcp),
    tried(lambda: socket.socket(socket.AF_UNIX).connect("/run/nothing")),
    tried(lambda: open(sys.argv[2]).read()),
    tried(lambda: open(sys.argv[2], "a").write("x")),
    tried(lambda: subprocess.run(["true"])),
    tried(lambda: open("/etc/hosts").read()),
)
"""


@pytest.mark.parametrize(
    ("which", "told"),
    [
        ("public", "forbidden forbidden forbidden forbidden forbidden done"),
        ("any", "tried forbidden forbidden forbidden forbidden done"),
    ],
)
def test_the_guard_forbids_addresses_files_and_processes(which: str, told: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text("the secret")
    command = [sys.executable, "-B", "-c", GUARDED, which, str(secret)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd="/")
    assert ended.stdout.strip() == told, ended.stderr
    assert secret.read_text() == "the secret"


async def test_the_machines_own_services_are_for_administrators() -> None:
    outcome = await send("syslog://", any_address=False)
    assert "only an administrator" in (outcome.error or "")


async def test_what_apprise_does_not_know_is_refused_in_words() -> None:
    channel = AppriseChannel("nonsense://s3cret-token", any_address=True, trusted=True)
    error = await channel.check()
    await channel.close()
    assert error is not None and "does not know" in error and "s3cret" not in error
