"""What `trainshed up` is told reaches the agent and the service, and is remembered."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from trainshed_service import cli
from trainshed_service.cli import life
from trainshed_service.cli.errors import CommandError
from trainshed_service.embedded import pids
from trainshed_service.embedded.home import Home, HomeConfig
from trainshed_service.embedded.plan import agent_command, service_environment
from trainshed_worker.agent.__main__ import parse
from trainshed_worker.agent.options import AgentOptions

PORTS = {"main": 10501, "gateway": 10502, "ingest": 10503}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Where nothing is started: the ports are there as after a start."""
    home = Home(tmp_path / "a home")

    def start(given: Home, *, port: int, with_agent: bool) -> None:
        given.write(given.read().model_copy(update={"ports": PORTS}))

    monkeypatch.setattr(life.control, "start_detached", start)
    return home


def up(monkeypatch: pytest.MonkeyPatch, home: Home, *words: str) -> AgentOptions:
    """The agent's options after `trainshed up`."""
    monkeypatch.setattr(sys, "argv", ["trainshed", "up", "--detach", "--home", str(home.folder), *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    return parse(agent_command(home, home.read())[1:])


def test_instance_types_and_nodes_are_the_agents_and_stay(monkeypatch: pytest.MonkeyPatch, home: Home) -> None:
    options = up(monkeypatch, home)
    assert (options.instance_types, options.slots) == ((), 2), "whatever a job asks for"
    types = ("ml.c5.xlarge", "ml.lab1.large")
    options = up(monkeypatch, home, "--nodes", "3", "--instance-type", types[0], "--instance-type", types[1])
    assert (options.instance_types, options.slots) == (types, 3)
    assert options.server == f"http://127.0.0.1:{PORTS['main']}"
    options = up(monkeypatch, home)
    assert (options.instance_types, options.slots) == (types, 3), "as last time"
    options = up(monkeypatch, home, "--instance-type", "ml.m5.large")
    assert (options.instance_types, options.slots) == (("ml.m5.large",), 3)


def test_roles_are_open_for_this_machine_alone(monkeypatch: pytest.MonkeyPatch, home: Home) -> None:
    up(monkeypatch, home)
    monkeypatch.delenv("TRAINSHED_ROLES", raising=False)
    found = [
        service_environment(home, home.read(), {}, for_others=others)["TRAINSHED_ROLES"] for others in (False, True)
    ]
    assert found == ["open", "known"]
    monkeypatch.setenv("TRAINSHED_ROLES", "known")
    assert service_environment(home, home.read(), {})["TRAINSHED_ROLES"] == "known"


@pytest.mark.parametrize("detach", [False, True])
def test_a_start_beside_one_that_has_no_ports_yet_says_so(tmp_path: Path, detach: bool) -> None:
    home = Home(tmp_path)
    home.prepare()
    home.write(HomeConfig())
    pids.note(home.pid_path("supervisor"), os.getpid())
    with pytest.raises(CommandError, match=r"is already running in .*still starting; try again"):
        life.start(home.folder, detach=detach)
