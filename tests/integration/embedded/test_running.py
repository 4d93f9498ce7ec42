"""One installation that runs: who may reach it, others beside it, and its parts killed. Each test leaves it running."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.parts import PARTS, parts_of, processes_of
from tests.support.stack import TRAINSHED, Stack, plain_environment, put_and_get, run
from tests.support.wait import wait_until
from trainshed_service.embedded import health, pids
from trainshed_service.embedded.home import Home

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    home = tmp_path_factory.mktemp("running") / "home"
    yield Stack.up(home, "--nodes", "1")
    run(TRAINSHED, "down", "--home", home, env=plain_environment())


def test_all_listen_on_loopback_only(stack: Stack):
    for process in parts_of(stack.home).values():
        for connection in psutil.Process(process.pid).net_connections("inet"):
            if connection.status == psutil.CONN_LISTEN:
                assert connection.laddr.ip == "127.0.0.1", connection


def test_plain_boto3_works_by_the_env_lines_alone(stack: Stack):
    script = (
        "import boto3, os\n"
        "who = boto3.client('sts').get_caller_identity()['Arn']\n"
        "s3 = boto3.client('s3')\n"
        "s3.create_bucket(Bucket='from-the-script')\n"
        "s3.put_object(Bucket='from-the-script', Key='k', Body=b'v')\n"
        "print(who, s3.get_object(Bucket='from-the-script', Key='k')['Body'].read().decode(), os.environ['NO_PROXY'])\n"
    )
    lines = 'eval "$("$0" env --home "$1")" && exec "$2" -c "$3"'
    # A user's own settings, all of which would send the client elsewhere, and a proxy that is not there.
    hostile = plain_environment() | {
        "AWS_PROFILE": "absent",
        "AWS_SESSION_TOKEN": "old",
        "AWS_ENDPOINT_URL_STS": "http://127.0.0.1:9",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "http_proxy": "http://127.0.0.1:9",
    }
    printed = run("bash", "-c", lines, TRAINSHED, stack.home, sys.executable, script, env=hostile).stdout
    assert "TrainshedExecutionRole" in printed and " v " in printed and "127.0.0.1" in printed


def test_one_home_has_one_supervisor(stack: Stack):
    done = run(TRAINSHED, "up", "--home", stack.home, env=plain_environment(), check=False)
    assert done.returncode == 1 and "already runs in" in done.stderr and "trainshed down" in done.stderr
    direct = [sys.executable, "-m", "trainshed_service.embedded", "--home", stack.home]
    done = run(*direct, env=plain_environment(), check=False)
    assert done.returncode == 1 and "already running" in done.stderr
    assert set(parts_of(stack.home)) == set(PARTS)


def test_two_homes_side_by_side(stack: Stack, tmp_path: Path):
    other = Stack.up(tmp_path / "other", "--nodes", "1")
    try:
        ports = [set(json.loads((each.home / "config.json").read_text())["ports"].values()) for each in (stack, other)]
        assert not ports[0] & ports[1]
        put_and_get(other, "only-here")
        assert all(entry["Key"] != "only-here" for entry in objects(stack))
        assert stack.env["AWS_ACCESS_KEY_ID"] != other.env["AWS_ACCESS_KEY_ID"]
    finally:
        other.down()
    assert processes_of(other.home) == []
    put_and_get(stack, "still-here")


def objects(stack: Stack) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = stack.client("s3").list_objects_v2(Bucket=stack.bucket).get("Contents", [])
    return found


def test_each_part_that_is_killed_is_started_again(stack: Stack):
    before = parts_of(stack.home)
    for process in before.values():
        os.kill(process.pid, signal.SIGKILL)
    wait_until(
        lambda: len(now := parts_of(stack.home)) == len(PARTS) and not set(now.values()) & set(before.values()),
        timeout=60,
        what="all parts are started again",
    )
    ports = json.loads((stack.home / "config.json").read_text())["ports"]
    for name in ("main", "gateway", "ingest"):
        wait_until(lambda name=name: health.answers(ports[name]), timeout=60, what=f"{name} answers again")
    put_and_get(stack, "after")
    log = (stack.home / "log" / "supervisor.log").read_text()
    for name in ("gateway", "ingest", "api", "agent"):
        assert f"{name} ended (killed by SIGKILL); starting it again" in log


def test_up_after_the_supervisor_was_killed(stack: Stack):
    put_and_get(stack, "before")
    lines = stack.trainshed("env").stdout
    supervisor = pids.living(Home(stack.home).pid_path("supervisor"))
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    wait_until(lambda: parts_of(stack.home) == {}, timeout=30, what="the parts end with their supervisor")
    recovered = Stack.up(stack.home)
    assert recovered.trainshed("env").stdout == lines
    assert recovered.client("s3").get_object(Bucket=recovered.bucket, Key="before")["Body"].read() == b"before"
    assert set(parts_of(stack.home)) == set(PARTS)
