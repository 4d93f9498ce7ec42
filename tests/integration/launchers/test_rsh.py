"""The exec server and its client as real processes on one host."""

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.wait import patient, wait_until
from trainshed_worker.launchers.support import RSH_FOLDER

SECRET = "the attempt's secret"


def isolated(script: str, *arguments: str) -> list[str]:
    return [sys.executable, "-I", "-S", str(RSH_FOLDER / script), *arguments]


@contextmanager
def server(folder: Path, secret: str = SECRET) -> Iterator[tuple[int, "subprocess.Popen[str]"]]:
    """A server on a free port, ended at the end whatever happens; `folder`/err holds its stderr."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (folder / "err").open("w") as errors:
        process = subprocess.Popen(
            isolated("server.py", "--port", str(port), "--address", "127.0.0.1"),
            env={"PATH": os.environ["PATH"], "TRAINSHED_GANG_SECRET": secret, "WHERE": "there"},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        yield port, process
    finally:
        process.kill()
        process.communicate()


def client(port: int, command: str, secret: str = SECRET, patience: str = "20") -> "subprocess.Popen[str]":
    environment = {
        "PATH": os.environ["PATH"],
        "TRAINSHED_GANG_SECRET": secret,
        "TRAINSHED_RSH_PEERS": f"algo-2=127.0.0.1:{port}",
        "TRAINSHED_RSH_SECONDS": patience,
        "TRAINSHED_RSH_PYTHON": sys.executable,
    }
    return subprocess.Popen(
        [str(RSH_FOLDER / "trainshed-rsh"), "-x", "algo-2", command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_command_runs_there_with_that_hosts_variables_and_its_exit_code_comes_back(tmp_path: Path) -> None:
    with server(tmp_path) as (port, process):
        caller = client(port, "echo $WHERE; echo bad >&2; echo secret=$TRAINSHED_GANG_SECRET; exit 7")
        out, err = caller.communicate(timeout=patient(30))
        assert caller.returncode == 7
        assert out.splitlines() == ["there", "secret="]
        assert err.splitlines() == ["bad"]
        assert process.wait(10) == 7


def test_a_signal_comes_back_as_128_and_its_number(tmp_path: Path) -> None:
    with server(tmp_path) as (port, process):
        caller = client(port, "kill -KILL $$")
        caller.communicate(timeout=patient(30))
        assert caller.returncode == 137
        assert process.wait(10) == 137


def test_a_caller_without_the_secret_runs_nothing_and_the_right_one_still_does(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with server(tmp_path) as (port, process):
        wrong = client(port, f"touch {mark}", secret="guessed")
        _, err = wrong.communicate(timeout=patient(30))
        assert wrong.returncode == 255
        assert "algo-2" in err
        with socket.create_connection(("127.0.0.1", port)) as rude:
            rude.sendall(b"x" * 32 + struct.pack("!I", 1 << 31))
            wait_until(lambda: "too long" in (tmp_path / "err").read_text(), what="the server drops a huge request")
        right = client(port, "true")
        right.communicate(timeout=patient(30))
        assert right.returncode == 0
        assert process.wait(10) == 0
    assert not mark.exists()
    assert "does not know the secret" in (tmp_path / "err").read_text()


def test_a_server_without_a_secret_does_not_start(tmp_path: Path) -> None:
    with server(tmp_path, secret="") as (_, process):
        assert process.wait(10) == 2


def test_the_command_ends_when_its_caller_goes_away(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with server(tmp_path) as (port, process):
        caller = client(port, f"echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; exec sleep 300")
        pid = int(wait_until(lambda: pid_file.exists() and pid_file.read_text(), what="the command runs"))
        caller.kill()
        caller.communicate()
        assert process.wait(patient(20)) == 1
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), what="the command is gone")


def test_a_host_that_does_not_answer_is_named_in_words() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        caller = client(probe.getsockname()[1], "true", patience="0.2")
        _, err = caller.communicate(timeout=patient(30))
    assert caller.returncode == 255
    assert "algo-2 does not answer" in err and "Open MPI" in err


@pytest.mark.parametrize("words", [[], ["algo-2"]])
def test_too_few_words_are_an_error(words: list[str]) -> None:
    done = subprocess.run(isolated("client.py", *words), capture_output=True, text=True, timeout=patient(30))
    assert done.returncode == 255
    assert "usage" in done.stderr
