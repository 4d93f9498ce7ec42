"""A sandbox made ahead becomes that of one instance, or ends and leaves nothing."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.sandbox.support import environment_binds, log_lines, make_spec, shell
from tests.support.wait import patient, wait_until
from trainshed_worker.sandbox import Bind, InstanceHandle, InstanceState, SandboxError, SandboxSpec, SpareSandbox, start
from trainshed_worker.sandbox.spare import discard

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces without a user namespace need root")


@pytest.fixture
def make_spare(tmp_path: Path) -> Iterator[Callable[[SandboxSpec], SpareSandbox]]:
    spares: list[SpareSandbox] = []

    def make(like: SandboxSpec) -> SpareSandbox:
        spares.append(SpareSandbox(tmp_path / "spares" / str(len(spares)), like))
        return spares[-1]

    yield make
    for spare in spares:
        spare.end()
        wait_until(lambda spare=spare: _is_gone(spare), timeout=30, what="the spare is gone")  # type: ignore[misc]


def _is_gone(spare: SpareSandbox) -> bool:
    try:
        discard(spare.directory)
    except SandboxError:
        return False
    return not spare.directory.exists()


def state_of(directory: Path) -> InstanceState:
    return InstanceState(**json.loads((directory / "state.json").read_text()))


def instance(directory: Path, script: str, **fields: object) -> SandboxSpec:
    binds = [replace(bind, common=True) for bind in environment_binds()]
    own = directory / "own"
    own.mkdir(parents=True, exist_ok=True)
    (own / "file").write_text(f"of {directory.name}\n")
    binds.append(Bind(str(own), "/opt/own", writable=True, give=True))
    return make_spec(directory / "instance", shell(script), binds=binds, **fields)


def ended(handle: InstanceHandle) -> int:
    record = handle.wait(patient(30))
    assert record is not None
    assert record.reaped
    return record.exit_code


def test_a_spare_becomes_the_instances_supervisor_and_shows_what_the_instance_asks_for(
    tmp_path: Path, make_spare: Callable[[SandboxSpec], SpareSandbox]
) -> None:
    script = "cat /opt/own/file; hostname; id -u; ls /tmp /opt; cat /etc/hosts; test -e /opt/ml && echo more; exit 3"
    first = instance(tmp_path / "first", script, hosts={"algo-1": "127.0.0.1"})
    spare = make_spare(first)
    waiting = state_of(spare.directory)
    second = instance(tmp_path / "second", script, hosts={"algo-1": "127.0.0.1"})
    assert spare.suits(second)
    handle = start(second, spare)
    state = handle.state()
    assert (state.supervisor_pid, state.init_pid) == (waiting.supervisor_pid, waiting.init_pid)
    assert state.cgroups == waiting.cgroups
    assert not (spare.directory / "state.json").exists()
    assert ended(handle) == 3
    lines = log_lines(handle)
    assert lines[:3] == ["of second", "algo-1", "200000"]
    assert "first" not in " ".join(lines)
    assert ended(start(first)) == 3  # as every sandbox does it
    assert log_lines(InstanceHandle(tmp_path / "first" / "instance"))[1:] == lines[1:]
    assert not [path for path in waiting.cgroups if os.path.exists(path)]


def test_it_ends_with_whoever_may_ask_and_leaves_nothing(
    tmp_path: Path, make_spare: Callable[[SandboxSpec], SpareSandbox]
) -> None:
    spare = make_spare(instance(tmp_path / "like", "true"))
    waiting = state_of(spare.directory)
    spare._channel.close()  # what the end of the agent does
    wait_until(lambda: not os.path.exists(f"/proc/{waiting.supervisor_pid}"), timeout=20, what="it has ended")
    assert not os.path.exists(f"/proc/{waiting.init_pid}")
    assert not [path for path in waiting.cgroups if os.path.exists(path)]


def test_one_that_died_gives_way_and_the_instance_is_started_once(
    tmp_path: Path, make_spare: Callable[[SandboxSpec], SpareSandbox]
) -> None:
    spec = instance(tmp_path / "job", "echo once")
    spare = make_spare(spec)
    waiting = state_of(spare.directory)
    os.kill(waiting.supervisor_pid, signal.SIGKILL)
    handle = start(spec, spare)
    assert ended(handle) == 0
    assert log_lines(handle) == ["once"]
    assert handle.state().supervisor_pid != waiting.supervisor_pid


def test_it_serves_no_instance_that_differs_in_what_is_made_already(
    tmp_path: Path, make_spare: Callable[[SandboxSpec], SpareSandbox]
) -> None:
    like = instance(tmp_path / "like", "true", hosts={"algo-1": "10.0.0.1"})
    spare = make_spare(like)
    assert spare.suits(replace(like, directory=str(tmp_path / "x"), commands=[shell("false")], deadline=5.0))
    for change in (
        {"hostname": "algo-2"},
        {"slot": 1},
        {"hosts": {"algo-1": "10.0.0.2"}},
        {"memory_bytes": 1 << 30},
        {"network": "host"},
        {"devices": ["/dev/null"]},
        {"binds": [*like.binds, Bind("/usr", "/opt/usr", common=True)]},
    ):
        assert not spare.suits(replace(like, **change)), change  # type: ignore[arg-type]
    hiding = replace(like, binds=[*like.binds, Bind(str(tmp_path), str(Path(like.binds[0].target).parent))])
    assert not spare.suits(hiding)
    with pytest.raises(SandboxError, match="lies where"):
        SpareSandbox(tmp_path / "never", hiding)
