"""One supervised process: restart with back-off, orderly end, its pid file, and its log's size."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.stack import REPOSITORY
from tests.support.wait import wait_until
from trainshed_service.embedded import parts as module
from trainshed_service.embedded import pids
from trainshed_service.embedded.forked import ForkServer
from trainshed_service.embedded.home import Home
from trainshed_service.embedded.parts import Part, describe_exit, rotate, tail

RUNS = "tests.support.given_code"


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    server = ForkServer([RUNS])
    yield server
    server.end()


@pytest.fixture
def make_part(tmp_path: Path, forks: ForkServer) -> Iterator[Callable[..., Part]]:
    home = Home(tmp_path / "home")
    home.prepare()
    made: list[Part] = []

    def make(code: str, **options: object) -> Part:
        part = Part("thing", home, forks, [RUNS, code], {"PATH": os.environ["PATH"]}, **options)  # type: ignore[arg-type]
        made.append(part)
        return part

    yield make
    for part in made:
        part.grace = 0.1
        part.stop()


WAIT = "import signal; print('up', flush=True); signal.pause()"


def test_it_is_noted_and_ends_on_sigterm(make_part: Callable[..., Part]):
    part = make_part(WAIT)
    part.start()
    noted = pids.living(part.home.pid_path("thing"))
    assert noted is not None and part.process is not None and noted.pid == part.process.pid
    wait_until(lambda: "up" in tail(part.home.log_path("thing")))
    part.stop()
    assert part.process.returncode == -signal.SIGTERM
    assert not part.home.pid_path("thing").exists()
    part.stop()


def test_one_that_ignores_sigterm_is_killed(make_part: Callable[..., Part]):
    said: list[str] = []
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + WAIT
    part = make_part(code, grace=0.2, report=said.append)
    part.start()
    wait_until(lambda: "up" in tail(part.home.log_path("thing")))
    part.stop()
    assert part.process is not None and part.process.returncode == -signal.SIGKILL
    assert "did not end" in said[0]


def test_one_that_dies_is_started_again_after_growing_delays(
    make_part: Callable[..., Part], monkeypatch: pytest.MonkeyPatch
):
    now = [1000.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    said: list[str] = []
    part = make_part("raise SystemExit(3)", report=said.append)
    part.start()
    delays = []
    for _ in range(9):
        assert part.process is not None
        part.process.wait()
        delay = part.poll()
        assert delay is not None
        delays.append(round(delay, 3))
        now[0] += delay
        assert part.poll() is None
    assert delays == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    assert "thing ended (exit code 3); starting it again in 0.1 s" in said[0]
    now[0] += 31  # it lived for long: the next fall is a new story
    part.process.wait()
    assert part.poll() == pytest.approx(0.1)


def test_it_dies_with_its_supervisor(tmp_path: Path):
    script = (
        "import sys, os\nfrom pathlib import Path\nfrom trainshed_service.embedded.home import Home\n"
        "from trainshed_service.embedded.forked import ForkServer\n"
        "from trainshed_service.embedded.parts import Part\n"
        "home = Home(Path(sys.argv[1])); home.prepare()\n"
        f"command = [{RUNS!r}, 'import signal; signal.pause()']\n"
        "part = Part('thing', home, ForkServer(command[:1]), command, dict(os.environ))\n"
        "part.start(); os.kill(os.getpid(), 9)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(tmp_path)], cwd=REPOSITORY, check=False)
    assert ended.returncode == -signal.SIGKILL
    path = Home(tmp_path).pid_path("thing")
    assert path.exists()
    wait_until(lambda: pids.living(path) is None, timeout=10)


def test_a_number_given_to_another_process_is_not_ours(tmp_path: Path):
    path = tmp_path / "x.pid"
    pids.note(path, os.getpid())
    living = pids.living(path)
    assert living is not None and living.pid == os.getpid()
    path.write_text(f"{living.pid} {living.started + 1}\n")
    assert pids.living(path) is None
    pids.end(pids.ProcessId(living.pid, living.started + 1), grace=0.1)  # must not end this test


@pytest.mark.parametrize("text", ["", "abc", "1", "12 x"])
def test_a_damaged_pid_file_names_nobody(tmp_path: Path, text: str):
    (tmp_path / "x.pid").write_text(text)
    assert pids.living(tmp_path / "x.pid") is None


def test_logs_are_rotated_while_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "LOG_LIMIT_BYTES", 100)
    path = tmp_path / "a.log"
    with path.open("ab", buffering=0) as writer:
        writer.write(b"x" * 101)
        rotate(path)
        writer.write(b"after\n")
    assert path.read_bytes() == b"after\n"
    assert path.with_name("a.log.1").read_bytes() == b"x" * 101
    rotate(path)
    assert path.read_bytes() == b"after\n"
    rotate(tmp_path / "absent.log")


def test_exits_in_words():
    assert describe_exit(-9) == "killed by SIGKILL"
    assert describe_exit(2) == "exit code 2"
