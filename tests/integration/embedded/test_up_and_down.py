"""Whole installations on this machine, started and ended by the command line as a user would, and crashed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.parts import PARTS, parts_of, processes_of
from tests.support.ports import free_port
from tests.support.stack import TRAINSHED, Stack, plain_environment, put_and_get, run

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Callable[..., Stack]]:
    def start(name: str = "home", *options: str) -> Stack:
        return Stack.up(tmp_path / name, "--nodes", "1", *options)

    yield start
    for config in tmp_path.glob("*/config.json"):
        run(TRAINSHED, "down", "--home", config.parent, env=plain_environment(), check=False)


def test_twice_up_and_twice_down_in_a_folder_with_spaces_at_a_named_port(up: Callable[..., Stack]):
    name, port = "it's a home  with spaces", free_port()
    first = up(name, "--port", str(port))
    assert set(parts_of(first.home)) == set(PARTS)
    assert first.env["AWS_ENDPOINT_URL"] == f"http://127.0.0.1:{port}"
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
    assert second.client("s3").get_object(Bucket=second.bucket, Key="one")["Body"].read() == b"one"


def test_a_port_that_is_taken_is_a_clear_error_and_leaves_nothing(tmp_path: Path):
    home = tmp_path / "home"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        command = [TRAINSHED, "up", "--home", home, "--detach", "--port", str(port)]
        done = run(*command, env=plain_environment(), check=False)
    assert done.returncode == 1
    assert f"port {port} is in use" in done.stderr and "--port" in done.stderr
    assert processes_of(home) == []


def test_many_detached_starts_at_once_give_one_installation(tmp_path: Path, up: Callable[..., Stack]):
    home = tmp_path / "home"
    command = [str(TRAINSHED), "up", "--home", str(home), "--detach", "--nodes", "1"]
    started = [
        subprocess.Popen(
            command,
            env=plain_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
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
