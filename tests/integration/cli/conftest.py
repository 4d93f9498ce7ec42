"""One service for the commands of this folder: api and ingest as processes, their home as the commands read it."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.scripted_agent import ScriptedAgent
from tests.support.shown_service import ShownService, shown_service
from trainshed_service import cli
from trainshed_service.cli import connection
from trainshed_service.embedded.aws_client import aws_client
from trainshed_service.embedded.home import Home


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


Command = Callable[..., Done]


@pytest.fixture(scope="package")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShownService]:
    with shown_service(tmp_path_factory.mktemp("a home")) as service:
        service.write_home()
        yield service


@pytest.fixture(scope="package")
def agent(service: ShownService) -> Iterator[ScriptedAgent]:
    """Two slots that run nothing: they only say so."""
    agent = ScriptedAgent(service.url, service.bootstrap.enrollment_token, types=["ml.c5.xlarge"])
    agent.enroll()
    agent.report().raise_for_status()
    yield agent
    agent.close()


@pytest.fixture(scope="package")
def aws(service: ShownService) -> Iterator[Callable[..., Any]]:
    """`aws_client`, called once for each name: most of what a command costs is reading the model of SageMaker."""
    before = dict(os.environ)
    config = Home(service.settings.home).read()
    yield functools.cache(functools.partial(aws_client, config))
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def trainshed(
    service: ShownService,
    aws: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Command:
    """`trainshed WORDS --home …` by its own entry, in this process: each start of an interpreter takes a second."""

    monkeypatch.setattr(connection, "aws_client", lambda _, name, **options: aws(name))

    def run(*words: str | Path, home: Path = service.settings.home) -> Done:
        monkeypatch.setattr(sys, "argv", ["trainshed", *map(str, words), "--home", str(home)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        code = ended.value.code
        return Done(code if isinstance(code, int) else 0, printed.out, printed.err)

    return run
