"""Forks of a process that has their modules imported are like fresh ones, and end with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.wait import wait_until
from trainshed_service.embedded.forked import ForkedProcess, ForkServer, ForkServerEnded
from trainshed_service.embedded.pids import start_time

RUNS = "tests.support.given_code"
PAUSE = "import signal; print('up', flush=True); signal.pause()"
# As in whoever started the server: a shell's background jobs ignore it.
INTERRUPTS = signal.getsignal(signal.SIGINT) is signal.default_int_handler
SEEN = """
import json, os, random, signal, sys, threading
print(json.dumps({
    "environment": dict(os.environ), "folder": os.getcwd(), "umask": os.umask(0), "arguments": sys.argv[2:],
    "session": os.getsid(0) == os.getpid(), "descriptors": sorted(map(int, os.listdir("/proc/self/fd")))[:-1],
    "blocked": [int(n) for n in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
    "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler, "random": random.random(),
    "threads": threading.active_count(), "title": open("/proc/self/cmdline").read().strip(chr(0)),
}))
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    made = ForkServer([RUNS])
    yield made
    made.end()


def run(server: ForkServer, folder: Path, code: str, *more: str, environment: dict[str, str] | None = None):
    return server.fork(RUNS, [code, *more], environment or {}, log=folder / "log", folder=folder)


def test_it_is_as_good_as_a_fresh_process(server: ForkServer, tmp_path: Path):
    seen = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert run(server, folder, SEEN, "a b", environment={"ONLY": "this"}).wait(30) == 0
        seen.append(json.loads((folder / "log").read_text()))
        title, drawn = seen[-1].pop("title"), seen[-1].pop("random")
        assert title.startswith(f"python -m {RUNS}") and title.endswith("a b")
        assert seen[-1] == {
            **{"environment": {"ONLY": "this"}, "folder": str(folder), "umask": 0o077, "arguments": ["a b"]},
            **{"session": True, "descriptors": [0, 1, 2], "blocked": [], "interrupt": INTERRUPTS, "threads": 1},
        }
        seen[-1]["random"] = drawn
    assert seen[0]["random"] != seen[1]["random"]


@pytest.mark.parametrize(
    ("code", "exit_code", "said"),
    [
        ("raise SystemExit(3)", 3, ""),
        ("raise ValueError('the reason')", 1, "ValueError: the reason"),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL, ""),
        ("import atexit; atexit.register(print, 'at the end')", 0, "at the end"),
    ],
)
def test_exits_are_told(server: ForkServer, tmp_path: Path, code: str, exit_code: int, said: str):
    process = run(server, tmp_path, code)
    assert process.wait(30) == process.poll() == process.returncode == exit_code
    assert said in (tmp_path / "log").read_text()
    process.kill()  # nothing: its number may be another's by now


def test_a_wait_ends_in_time(server: ForkServer, tmp_path: Path):
    process = run(server, tmp_path, PAUSE)
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.terminate()
    assert process.wait(30) == -signal.SIGTERM


def up(server: ForkServer, folder: Path) -> ForkedProcess:
    process = run(server, folder, PAUSE)
    log = folder / "log"
    wait_until(lambda: log.exists() and log.read_text() == "up\n")
    return process


def test_what_it_forked_ends_with_it_and_the_next_is_forked_by_another(tmp_path: Path):
    server = ForkServer([RUNS])
    first = up(server, tmp_path)
    parent = int(Path(f"/proc/{first.pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(parent, signal.SIGKILL)
    assert first.wait(30) == -signal.SIGKILL
    (tmp_path / "log").unlink()
    second = up(server, tmp_path)
    server.end()
    wait_until(lambda: start_time(second.pid) is None)


THREAD = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"


@pytest.mark.parametrize(
    ("code", "said"), [("raise ImportError('no such thing')", "no such thing"), (THREAD, "starts threads")]
)
def test_a_module_that_cannot_be_served_is_told(tmp_path: Path, code: str, said: str):
    (tmp_path / "spoilt.py").write_text(code)
    log = tmp_path / "server.log"
    server = ForkServer(["spoilt"], environment={**os.environ, "PYTHONPATH": str(tmp_path)}, log=log)
    with pytest.raises(ForkServerEnded, match="ended with 1"):
        server.fork("spoilt", [], {}, log=tmp_path / "log", folder=tmp_path)
    assert said in log.read_text()
    server.end()
