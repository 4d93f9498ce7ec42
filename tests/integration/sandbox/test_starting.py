"""Starting: many at once, interrupted at any moment, and what a started process finds around it."""

import fcntl
import os
import signal
import struct
import termios
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.sandbox.support import log_lines, make_spec, python, shell
from tests.support.wait import wait_until
from trainshed_worker.sandbox import (
    Bind,
    ClusterNetwork,
    InstanceHandle,
    SandboxError,
    SandboxSpec,
    attach,
    prove_empty,
    spawn,
    start,
)

Start = Callable[[SandboxSpec], InstanceHandle]
Network = Callable[[Path], ClusterNetwork]


def test_eight_at_once_in_one_cluster(tmp_path: Path, start_instance: Start, make_network: Network) -> None:
    names = [f"algo-{n + 1}" for n in range(8)]
    addresses = make_network(tmp_path / "net").ensure(names, {}, isolated=True)
    script = (
        "import socket, sys\nme = socket.gethostname(); server = socket.create_server((me, 7777))\n"
        "print(me, len({socket.gethostbyname(n) for n in sys.argv[1:]}))"
    )

    def one(slot: int) -> InstanceHandle:
        spec = make_spec(
            tmp_path / names[slot],
            python(script, *names),
            hostname=names[slot],
            hosts=addresses.hosts,
            network="cluster",
            network_dir=str(tmp_path / "net"),
            slot=slot,
        )
        return start_instance(spec)

    with ThreadPoolExecutor(8) as pool:
        handles = list(pool.map(one, range(8)))
    for name, handle in zip(names, handles, strict=True):
        record = handle.wait(60)
        assert record is not None and record.exit_code == 0, log_lines(handle)
        assert log_lines(handle) == [f"{name} 8"]


def test_the_same_name_can_follow_at_once_in_a_kept_network(
    tmp_path: Path, start_instance: Start, make_network: Network
) -> None:
    addresses = make_network(tmp_path / "net").ensure(["algo-1"], {}, isolated=True)
    for number in range(5):
        spec = make_spec(
            tmp_path / str(number),
            shell("cat /sys/class/net/eth0/address 2>/dev/null; hostname"),
            hosts=addresses.hosts,
            network="cluster",
            network_dir=str(tmp_path / "net"),
        )
        handle = start_instance(spec)
        record = handle.wait(30)
        assert record is not None and record.exit_code == 0
        assert handle.prove_empty()


def test_two_starters_of_one_folder_start_it_once(tmp_path: Path, start_instance: Start) -> None:
    spec = make_spec(tmp_path / "i", shell("echo once"))
    gate = threading.Barrier(3)

    def one(_: int) -> str:
        gate.wait()
        try:
            return str(start_instance(spec).directory)
        except SandboxError as error:
            return str(error)

    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(one, range(3)))
    assert answers == [str(tmp_path / "i")] * 3
    handle = attach(tmp_path / "i")
    assert handle is not None and handle.wait(30) is not None
    assert log_lines(handle) == ["once"]


@pytest.mark.parametrize("phase", ["starting", "running"])
def test_a_supervisor_killed_at_any_moment_leaves_nothing(tmp_path: Path, start_instance: Start, phase: str) -> None:
    """The kill comes as soon as the state file shows the phase: before, while or after init starts the commands."""
    directory = tmp_path / "i"
    killed: list[int] = []

    def kill_when_seen() -> None:
        def seen() -> bool:
            handle = attach(directory)
            return handle is not None and handle.state().phase == phase

        wait_until(seen, every=0.0005)
        state = InstanceHandle(directory).state()
        os.kill(state.supervisor_pid, signal.SIGKILL)
        killed.append(state.supervisor_pid)

    killer = threading.Thread(target=kill_when_seen)
    killer.start()
    try:
        start_instance(make_spec(directory, shell("sleep 600 & sleep 600")))
    except SandboxError as error:
        assert "before it was ready" in str(error)
    killer.join()
    assert killed
    handle = InstanceHandle(directory)
    record = handle.wait(30)
    assert record is not None and record.reason == "supervisor-lost" and record.reaped
    assert handle.prove_empty()
    assert not any(Path(path).exists() for path in handle.state().cgroups)


@pytest.mark.parametrize("stopped_first", [False, True], ids=["at once", "with the request in its queue"])
def test_a_killed_zygote_is_replaced(tmp_path: Path, start_instance: Start, stopped_first: bool) -> None:
    first = start_instance(make_spec(tmp_path / "1", shell("sleep 600")))
    zygote = spawn._zygote
    assert zygote is not None
    if stopped_first:
        os.kill(zygote.process.pid, signal.SIGSTOP)
    kill = _kill_when_asked if stopped_first else _kill_at_once
    with ThreadPoolExecutor(1) as pool:
        killed = pool.submit(kill, zygote)
        if not stopped_first:
            killed.result()
        second = start_instance(make_spec(tmp_path / "2", shell("exit 5")))
    killed.result()
    record = second.wait(30)
    assert record is not None and record.exit_code == 5
    assert first.is_alive()


def _kill_at_once(zygote: spawn._Zygote) -> None:
    os.kill(zygote.process.pid, signal.SIGKILL)


def _kill_when_asked(zygote: spawn._Zygote) -> None:
    """Kill a stopped zygote once a request waits in its queue."""

    def asked() -> bool:
        return struct.unpack("i", fcntl.ioctl(zygote.channel, termios.TIOCOUTQ, b"\0" * 4))[0] > 0

    wait_until(asked, every=0.0005)
    os.kill(zygote.process.pid, signal.SIGKILL)


def test_limits_and_surroundings(tmp_path: Path, start_instance: Start) -> None:
    script = (
        "ulimit -c; pwd; cat /proc/1/comm; df -k /dev/shm | tail -1 | awk '{print $2}'; echo \"$A|$HOME\"; "
        "touch '/opt/ml/made here'; ls /proc/self/fd | wc -l; umask; getent hosts algo-1 | awk '{print $2}'"
    )
    ml = tmp_path / "m l"
    ml.mkdir()
    spec = make_spec(
        tmp_path / "i",
        shell(script, cwd="/opt/ml"),
        binds=[Bind(str(ml), "/opt/ml", writable=True, give=True)],
        shm_bytes=8 << 20,
    )
    handle = start_instance(spec)
    record = handle.wait(30)
    assert record is not None and record.exit_code == 0
    core, cwd, _, shm, env, descriptors, umask, host = log_lines(handle)
    assert (core, cwd, shm, env, umask, host) == ("0", "/opt/ml", "8192", "|", "0022", "algo-1")
    assert int(descriptors) <= 4
    assert (ml / "made here").exists()


def test_a_bind_may_lie_below_any_folder_for_temporary_files(tmp_path: Path, start_instance: Start) -> None:
    (tmp_path / "shown").mkdir()
    (tmp_path / "shown" / "file").write_text("installed here")
    folders = ("/tmp", "/var/tmp")
    binds = [Bind(str(tmp_path / "shown"), f"{folder}/in{folder}") for folder in folders]
    script = "; ".join(f"cat {folder}/in{folder}/file; echo; echo x > {folder}/own" for folder in folders)
    handle = start_instance(make_spec(tmp_path / "i", shell(f"{script}; ls /tmp"), binds=binds))
    record = handle.wait(30)
    assert record is not None and record.exit_code == 0
    assert log_lines(handle)[:2] == ["installed here", "installed here"]


def test_the_machines_network_where_asked(tmp_path: Path, start_instance: Start) -> None:
    handle = start_instance(
        make_spec(
            tmp_path / "i",
            shell("readlink /proc/self/ns/net; hostname; cat /etc/hosts"),
            network="host",
            hosts={"algo-2": "192.0.2.9"},
        )
    )
    assert handle.wait(30) is not None
    lines = log_lines(handle)
    assert lines[:2] == [os.readlink("/proc/self/ns/net"), "algo-1"]
    assert "192.0.2.9 algo-2" in lines


def test_names_are_looked_up_both_ways_and_unknown_ones_are_not_tried_again(
    tmp_path: Path, start_instance: Start, make_network: Network
) -> None:
    addresses = make_network(tmp_path / "net").ensure(["algo-1"], {}, isolated=True)
    script = """
import socket
address = socket.gethostbyname("algo-1")
print(socket.getnameinfo((address, 7777), 0)[0])
print(socket.getnameinfo((f"::ffff:{address}", 7777, 0, 0), 0)[0] == f"::ffff:{address}")
try:
    socket.getaddrinfo("nobody.example", 80)
except socket.gaierror as error:
    print(error.errno == socket.EAI_NONAME)
"""
    spec = make_spec(
        tmp_path / "i",
        python(script),
        hosts=addresses.hosts,
        network="cluster",
        network_dir=str(tmp_path / "net"),
    )
    handle = start_instance(spec)
    assert handle.wait(60) is not None
    assert log_lines(handle) == ["algo-1", "True", "True"]


@pytest.mark.parametrize(
    ("bind", "text"),
    [
        (lambda folder: Bind(str(folder), "/opt/ml"), "would show"),
        (lambda folder: Bind("relative", "/opt/ml"), "absolute"),
        (lambda folder: Bind("/usr", "/opt/../etc"), "without"),
    ],
)
def test_binds_that_make_no_sense_are_refused(tmp_path: Path, bind: Callable[[Path], Bind], text: str) -> None:
    with pytest.raises(SandboxError, match=text):
        start(make_spec(tmp_path / "i", shell("true"), binds=[bind(tmp_path)]))
    assert prove_empty(tmp_path / "i")


def test_a_cluster_without_its_network_is_refused(tmp_path: Path) -> None:
    spec = make_spec(tmp_path / "i", shell("true"), network="cluster", network_dir=str(tmp_path / "net"))
    with pytest.raises(SandboxError, match=r"does not run; call ensure\(\) first"):
        start(spec)
