"""What outlives what: the agent's end changes nothing, the supervisor's end leaves nothing."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.integration.sandbox.support import log_lines, make_spec, shell
from tests.support.wait import wait_until
from trainshed_worker.sandbox import InstanceHandle, SandboxSpec, SpoolWriter, attach, start
from trainshed_worker.sandbox.procs import process_state

Start = Callable[[SandboxSpec], InstanceHandle]

_STARTER = """
import os, signal, sys
from trainshed_worker.sandbox.handle import start
from trainshed_worker.sandbox.spec import SandboxSpec
start(SandboxSpec.from_json(sys.stdin.read()))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_kill_of_the_starter_leaves_the_instance_running_and_attachable(tmp_path: Path, start_instance: Start) -> None:
    script = "echo up; while [ ! -e /tmp/go ]; do sleep 0.02; done; echo down; exit 6"
    spec = make_spec(tmp_path / "i", shell(script))
    done = subprocess.run([sys.executable, "-c", _STARTER], input=spec.to_json(), text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    handle = start_instance(spec)  # idempotent: finds the running one
    assert handle.exit_record() is None and handle.is_alive()
    assert not handle.prove_empty()
    (tmp_path / "i" / "scratch" / "tmp" / "go").touch()
    record = handle.wait(30)
    assert record is not None and record.exit_code == 6
    assert log_lines(handle) == ["up", "down"]


def test_kill_of_the_supervisor_leaves_no_process(tmp_path: Path, start_instance: Start) -> None:
    deep = "setsid sh -c 'trap \"\" TERM HUP; echo deep; while :; do sleep 1; done'"
    script = f"({deep} &); echo up; while :; do sleep 1; done"
    handle = start_instance(make_spec(tmp_path / "i", shell(script)))
    wait_until(lambda: {"up", "deep"} <= set(log_lines(handle)))
    state = handle.state()
    inside = _processes_of(state.init_pid)
    assert len(inside) >= 3
    os.kill(state.supervisor_pid, signal.SIGKILL)
    record = handle.wait(30)
    assert record is not None
    assert (record.reason, record.exit_code, record.reaped) == ("supervisor-lost", 137, True)
    assert handle.prove_empty()
    assert {process_state(pid) for pid in inside} <= {None, "Z"}  # the machine's init may not have reaped it yet
    again = attach(tmp_path / "i")
    assert again is not None and again.exit_record() == record


def _processes_of(init: int) -> list[int]:
    namespace = os.readlink(f"/proc/{init}/ns/pid")
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{entry}/ns/pid") == namespace:
                found.append(int(entry))
        except OSError:
            continue
    return found


def test_state_and_exit_record_are_whole_files(tmp_path: Path, start_instance: Start) -> None:
    handle = start_instance(make_spec(tmp_path / "i", shell("exit 0")))
    assert handle.wait(30) is not None
    assert json.loads((tmp_path / "i" / "exit.json").read_text())["exit_code"] == 0
    assert handle.state().phase == "exited"
    assert sorted(p.name for p in (tmp_path / "i").iterdir() if p.name.startswith(".")) == []


def test_the_spool_goes_on_before_and_after_the_supervisor(tmp_path: Path, start_instance: Start) -> None:
    with SpoolWriter(tmp_path / "i" / "spool") as spool:
        spool.append([(1, "algo-1", "Downloading")])
    handle = start_instance(make_spec(tmp_path / "i", shell("echo training")))
    record = handle.wait(30)
    assert record is not None and record.next_seq == 2
    with SpoolWriter(tmp_path / "i" / "spool") as spool:
        spool.append([(2, "algo-1", "Uploading")])
    assert log_lines(handle) == ["Downloading", "training", "Uploading"]


def test_a_folder_is_started_once(tmp_path: Path, start_instance: Start) -> None:
    spec = make_spec(tmp_path / "i", shell("echo once"))
    assert start_instance(spec).wait(30) is not None
    assert start(spec).exit_record() is not None
    assert log_lines(start(spec)) == ["once"]


def test_no_process_holds_the_starters_descriptors(tmp_path: Path, start_instance: Start) -> None:
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    handle = start_instance(make_spec(tmp_path / "i", shell("echo up; sleep 600")))
    wait_until(lambda: log_lines(handle) == ["up"])
    os.close(write_end)
    assert os.read(read_end, 1) == b""  # would block if anyone else held it
    os.close(read_end)
