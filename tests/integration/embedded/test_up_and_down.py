"""Whole installations on this machine, started and ended by the command line as a user would, and crashed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.parts import PARTS, parts_of, processes_of
from tests.support.stack import TRAINSHED, Stack, plain_environment, run
from tests.support.wait import wait_until
from trainshed_service.embedded import health, pids
from trainshed_service.embedded.home import Home

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Callable[..., Stack]]:
    homes: list[Path] = []

    def start(name: str = "home", *options: str) -> Stack:
        homes.append(tmp_path / name)
        return Stack.up(tmp_path / name, "--nodes", "1", *options)

    yield start
    for home in dict.fromkeys(homes):
        run(TRAINSHED, "down", "--home", home, env=plain_environment(), check=False)


def put_and_get(stack: Stack, key: str) -> None:
    s3 = stack.client("s3")
    bucket = s3.list_buckets()["Buckets"][0]["Name"]
    s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == key.encode()


def test_twice_up_and_twice_down_in_a_folder_with_spaces(up: Callable[..., Stack]):
    name = "it's a home  with spaces"
    first = up(name)
    assert set(parts_of(first.home)) == set(PARTS)
    put_and_get(first, "one")
    again = up(name)
    assert again.env == first.env and parts_of(first.home) == parts_of(again.home)
    configuration = json.loads((first.home / "config.json").read_text())
    assert (first.home / "config.json").stat().st_mode & 0o777 == 0o600

    first.down()
    assert processes_of(first.home) == [] and parts_of(first.home) == {}
    first.down()

    second = up(name)
    assert second.env == first.env, "keys, ports, account and role stay"
    assert json.loads((first.home / "config.json").read_text()) == configuration
    bucket = configuration_bucket(second)
    assert second.client("s3").get_object(Bucket=bucket, Key="one")["Body"].read() == b"one"


def configuration_bucket(stack: Stack) -> str:
    return str(Home(stack.home).read().default_bucket)


def test_two_homes_side_by_side(up: Callable[..., Stack]):
    one, two = up("one"), up("two")
    ports = [set(json.loads((stack.home / "config.json").read_text())["ports"].values()) for stack in (one, two)]
    assert not ports[0] & ports[1]
    put_and_get(one, "only-here")
    assert "Contents" not in two.client("s3").list_objects_v2(Bucket=configuration_bucket(two))
    assert one.env["AWS_ACCESS_KEY_ID"] != two.env["AWS_ACCESS_KEY_ID"]
    one.down()
    assert processes_of(one.home) == []
    put_and_get(two, "still-here")


def test_all_listen_on_loopback_only(up: Callable[..., Stack]):
    stack = up()
    for process in parts_of(stack.home).values():
        for connection in psutil.Process(process.pid).net_connections("inet"):
            if connection.status == psutil.CONN_LISTEN:
                assert connection.laddr.ip == "127.0.0.1", connection


def test_plain_boto3_works_by_the_env_lines_alone(up: Callable[..., Stack]):
    stack = up()
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


def test_a_port_that_is_taken_is_a_clear_error_and_leaves_nothing(tmp_path: Path):
    home = tmp_path / "home"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        command = [TRAINSHED, "up", "--home", home, "--detach", "--port", str(port)]
        done = run(*command, env=plain_environment(), check=False)
    assert done.returncode == 1
    assert f"port {port} is in use" in done.stderr and "--port" in done.stderr
    assert processes_of(home) == []


def test_the_named_port_is_used_and_kept(up: Callable[..., Stack]):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    stack = up("home", "--port", str(port))
    assert stack.env["AWS_ENDPOINT_URL"] == f"http://127.0.0.1:{port}"
    stack.down()
    assert up("home").env["AWS_ENDPOINT_URL"] == f"http://127.0.0.1:{port}"


def test_up_after_the_supervisor_was_killed(up: Callable[..., Stack]):
    stack = up()
    put_and_get(stack, "before")
    supervisor = pids.living(Home(stack.home).pid_path("supervisor"))
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    wait_until(lambda: parts_of(stack.home) == {}, timeout=30, what="the parts end with their supervisor")
    recovered = up()
    assert recovered.env == stack.env
    bucket = configuration_bucket(recovered)
    assert recovered.client("s3").get_object(Bucket=bucket, Key="before")["Body"].read() == b"before"
    assert set(parts_of(stack.home)) == set(PARTS)


def test_each_part_that_is_killed_is_started_again(up: Callable[..., Stack]):
    stack = up()
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


def test_one_home_has_one_supervisor(up: Callable[..., Stack]):
    stack = up()
    done = run(TRAINSHED, "up", "--home", stack.home, env=plain_environment(), check=False)
    assert done.returncode == 1 and "already runs in" in done.stderr and "trainshed down" in done.stderr
    direct = [sys.executable, "-m", "trainshed_service.embedded", "--home", stack.home]
    done = run(*direct, env=plain_environment(), check=False)
    assert done.returncode == 1 and "already running" in done.stderr
    assert set(parts_of(stack.home)) == set(PARTS)


def test_many_detached_starts_at_once_give_one_installation(tmp_path: Path, up: Callable[..., Stack]):
    home = tmp_path / "home"
    command = [str(TRAINSHED), "up", "--home", str(home), "--detach", "--nodes", "1"]
    started = [
        subprocess.Popen(command, env=plain_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    outcomes = [(process.communicate(timeout=200)[1], process.returncode) for process in started]
    assert [code for _, code in outcomes].count(0) >= 1, outcomes
    for text, code in outcomes:
        assert code == 0 or "already running" in text, outcomes
    put_and_get(up(), "one-winner")


def test_ctrl_c_in_the_foreground_ends_everything(tmp_path: Path):
    home = tmp_path / "home"
    process = subprocess.Popen(
        [str(TRAINSHED), "up", "--home", str(home), "--nodes", "1"],
        env=plain_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if "trainshed env" in line:
                break
        assert any("Trainshed is up at" in line for line in said), said
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    assert processes_of(home) == []


def test_a_part_that_cannot_start_shows_its_log(tmp_path: Path):
    home = tmp_path / "home"
    # The gateway refuses this setting at its start.
    environment = plain_environment() | {"TRAINSHED_SSE_MODE": "rot13"}
    done = run(TRAINSHED, "up", "--home", home, "--detach", env=environment, check=False)
    assert done.returncode == 1
    assert "gateway ended at its start" in done.stderr and "rot13" in done.stderr
    assert processes_of(home) == []
