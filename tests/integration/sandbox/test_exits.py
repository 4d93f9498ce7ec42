"""How instances end: codes, signals, gangs, graces, deadlines, memory."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.sandbox.support import log_lines, make_spec, python, shell
from tests.support.wait import wait_until
from trainshed_worker.sandbox import ExitRecord, InstanceHandle, SandboxError, SandboxSpec, attach, run_once, start

Start = Callable[[SandboxSpec], InstanceHandle]


def finish(handle: InstanceHandle, timeout: float = 60.0) -> ExitRecord:
    record = handle.wait(timeout)
    assert record is not None, "it still runs"
    return record


@pytest.mark.parametrize(
    ("script", "code", "signal"),
    [("exit 0", 0, None), ("exit 3", 3, None), ("kill -SEGV $$", 139, 11), ("kill -KILL $$", 137, 9)],
)
def test_exit_codes_and_signals(
    tmp_path: Path, start_instance: Start, script: str, code: int, signal: int | None
) -> None:
    record = finish(start_instance(make_spec(tmp_path / "i", shell(script))))
    assert (record.exit_code, record.signal, record.reason, record.oom) == (code, signal, "exited", False)
    assert record.reaped
    assert record.started_at is not None and record.started_at <= record.ended_at


def test_a_command_that_does_not_exist_is_127_with_a_line_that_says_so(tmp_path: Path, start_instance: Start) -> None:
    spec = make_spec(tmp_path / "i", shell("true"))
    command = spec.commands[0]
    handle = start_instance(
        SandboxSpec(directory=spec.directory, hostname="algo-1", commands=[type(command)(["/no/such"], command.env)])
    )
    assert finish(handle).exit_code == 127
    assert log_lines(handle) == ["trainshed: cannot run '/no/such': No such file or directory"]


def test_the_first_failure_ends_the_gang(tmp_path: Path, start_instance: Start) -> None:
    waiting = "trap 'echo told; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    failing = "while [ ! -e /tmp/go ]; do sleep 0.02; done; exit 7"
    handle = start_instance(
        make_spec(tmp_path / "i", shell(waiting, tag="0"), shell(failing, tag="1"), shell(waiting, tag="2"))
    )
    wait_until(lambda: log_lines(handle).count("up") == 2)
    (tmp_path / "i" / "scratch" / "tmp" / "go").touch()
    record = finish(handle)
    assert record.exit_code == 7
    assert [(c.tag, c.exit_code, c.first_failure, c.by_us) for c in record.commands] == [
        ("0", 0, False, True),
        ("1", 7, True, False),
        ("2", 0, False, True),
    ]
    assert log_lines(handle).count("told") == 2


def test_stop_reaches_every_process_and_is_recorded(tmp_path: Path, start_instance: Start) -> None:
    child = "(trap 'echo child; exit 0' TERM; echo up; while :; do sleep 0.05; done)"
    script = f"trap 'echo parent; wait; exit 5' TERM; {child} & while :; do wait; done"
    handle = start_instance(make_spec(tmp_path / "i", shell(script)))
    wait_until(lambda: "up" in log_lines(handle))
    handle.stop(20)
    record = finish(handle)
    assert (record.exit_code, record.reason) == (5, "stopped")
    assert {"parent", "child"} <= set(log_lines(handle))


def test_a_tree_that_ignores_sigterm_ends_by_its_grace(tmp_path: Path, start_instance: Start) -> None:
    deep = "setsid sh -c 'trap \"\" TERM; echo deep; while :; do sleep 1; done'"
    script = f"trap '' TERM; ({deep} &) ; echo up; while :; do sleep 1; done"
    handle = start_instance(make_spec(tmp_path / "i", shell(script)))
    wait_until(lambda: {"up", "deep"} <= set(log_lines(handle)))
    asked = time.monotonic()
    handle.stop(1.0)
    record = finish(handle)
    assert 1.0 <= time.monotonic() - asked < 15
    assert (record.exit_code, record.reason) == (137, "stopped")
    assert handle.prove_empty()


def test_a_shorter_grace_replaces_a_longer_one(tmp_path: Path, start_instance: Start) -> None:
    handle = start_instance(make_spec(tmp_path / "i", shell("trap '' TERM; echo up; while :; do sleep 1; done")))
    wait_until(lambda: log_lines(handle) == ["up"])
    handle.stop(600)
    wait_until(lambda: handle.state().phase == "stopping")
    handle.stop(0.1)
    assert finish(handle, 15).reason == "stopped"


def test_the_deadline_ends_it_without_any_agent(tmp_path: Path, start_instance: Start) -> None:
    handle = start_instance(make_spec(tmp_path / "i", shell("sleep 600"), deadline=time.time() + 0.5))
    record = finish(handle, 30)
    assert (record.exit_code, record.signal, record.reason) == (143, 15, "deadline")


def test_strays_end_with_the_last_command(tmp_path: Path, start_instance: Start) -> None:
    handle = start_instance(make_spec(tmp_path / "i", shell("setsid sleep 600 & echo bye")))
    assert finish(handle, 30).exit_code == 0
    assert handle.prove_empty()


def test_out_of_memory_is_recognised(tmp_path: Path, start_instance: Start) -> None:
    script = "blocks = []\nwhile True: blocks.append(bytearray(b'x' * 4_000_000))"
    handle = start_instance(make_spec(tmp_path / "i", python(script), memory_bytes=96 << 20))
    if not any("memory" in path for path in handle.state().cgroups):
        handle.kill()
        pytest.skip("no memory cgroup on this machine")
    record = finish(handle)
    assert (record.exit_code, record.oom) == (137, True)
    assert record.memory_peak_bytes is not None and record.memory_peak_bytes <= 96 << 20
    assert handle.prove_empty()
    assert not any(Path(path).exists() for path in handle.state().cgroups)


def test_a_missing_bind_is_a_clear_error_and_leaves_a_record(tmp_path: Path) -> None:
    from trainshed_worker.sandbox import Bind

    spec = make_spec(tmp_path / "i", shell("true"), binds=[Bind(str(tmp_path / "absent"), "/opt/ml")])
    with pytest.raises(SandboxError, match=r"absent, to be shown at /opt/ml, does not exist"):
        start(spec)
    handle = attach(tmp_path / "i")
    assert handle is not None
    record = handle.exit_record()
    assert record is not None and record.reason == "sandbox-failed" and "absent" in record.message
    assert handle.prove_empty()


def test_run_once_gives_output_and_end(tmp_path: Path) -> None:
    result = run_once(make_spec(tmp_path / "once", shell("echo out; echo err >&2; exit 4")))
    assert (result.record.exit_code, result.lines) == (4, ["out", "err"])
    late = run_once(make_spec(tmp_path / "late", shell("sleep 600")), timeout=0.5)
    assert late.record.reason == "deadline"


def test_usage_is_accounted(tmp_path: Path, start_instance: Start) -> None:
    script = (
        "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"
        "print('used', flush=True); time.sleep(600)"
    )
    handle = start_instance(make_spec(tmp_path / "i", python(script)))
    if not handle.state().cgroups:
        pytest.skip("no cgroups on this machine")
    wait_until(lambda: "used" in log_lines(handle))
    usage = handle.usage()
    assert usage.cpu_seconds is not None and usage.cpu_seconds >= 0.3
    assert usage.memory_bytes is not None and usage.memory_bytes > 1_000_000
    assert usage.processes == 2
