"""`trainshed notify …` against a running service."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.api_process import ApiProcess
from tests.support.ports import free_port
from tests.support.receivers import WebhookServer
from trainshed_service.cli.app import app
from trainshed_service.cli.errors import CommandError
from trainshed_service.embedded.home import Home, HomeConfig


def command(home: Path, *words: str) -> str:
    done = CliRunner().invoke(app, ["notify", *words, "--home", str(home)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def refused(home: Path, *words: str) -> str:
    with pytest.raises(CommandError) as caught:
        command(home, *words)
    return str(caught.value)


def test_targets_are_added_listed_tried_and_removed(api: ApiProcess) -> None:
    home = home_of(api)
    assert "no notification targets" in command(home, "list")
    with WebhookServer() as hook:
        said = command(home, "add", hook.url, "--on", "pool", "--on", "job.failed")
        target = said.split()[0]
        assert f"http://127.0.0.1:{hook.port}/***" in said and "of everybody" in said
        assert "job.failed, pool.available, pool.expiring, pool.ended" in said
        assert "was delivered" in command(home, "test", target)
        assert hook.bodies[0]["detail"]["TargetId"] == target
    mine = json.loads(command(home, "add", f"http://127.0.0.1:{free_port()}/s3cret", "--mine", "--json"))
    assert (mine["user"], mine["status"]) == ("admin", "ok")
    assert "was not delivered: cannot deliver" in refused(home, "test", mine["id"])
    listed = command(home, "list")
    assert target in listed and mine["id"] in listed and "s3cret" not in listed
    assert "one of --user NAME and --mine" in refused(home, "add", "https://x.example", "--mine", "--user", "a")
    assert "cannot be found" in refused(home, "add", "https://x.example", "--user", "nobody")
    assert "no such kind" in refused(home, "add", "https://x.example", "--on", "everything")
    assert "does not know such a URL" in refused(home, "add", "nonsense://x")
    assert "no more notifications" in command(home, "remove", target)
    assert [each["id"] for each in json.loads(command(home, "list", "--json"))["targets"]] == [mine["id"]]
    assert "no notification target" in refused(home, "remove", target)


def home_of(api: ApiProcess) -> Path:
    """The home, with what the commands read of it."""
    home = Home(api.home)
    home.prepare()
    config = HomeConfig(
        account_id=api.bootstrap.account_id,
        ports={"main": api.port},
        access_key_id=api.bootstrap.admin.access_key_id,
        secret_access_key=api.bootstrap.admin.secret_access_key,
        token=api.token,
        role_arn=api.bootstrap.role_arn,
    )
    home.write(config)
    return home.folder
