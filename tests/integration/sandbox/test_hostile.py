"""What a job that means harm can't do. Each script prints what it got; the test says what it must have got."""

import json
import os
import socket
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.sandbox.support import environment_binds, log_lines, make_spec, python, shell
from tests.support.wait import wait_until
from trainshed_worker.sandbox import Bind, ClusterNetwork, Command, InstanceHandle, SandboxError, SandboxSpec

Start = Callable[[SandboxSpec], InstanceHandle]
Network = Callable[[Path], ClusterNetwork]


def run(start_instance: Start, spec: SandboxSpec) -> list[str]:
    handle = start_instance(spec)
    record = handle.wait(60)
    assert record is not None
    return log_lines(handle)


def report_of(start_instance: Start, directory: Path, command: Command, **fields: object) -> dict[str, object]:
    lines = run(start_instance, make_spec(directory, command, **fields))
    value: dict[str, object] = json.loads(lines[-1])
    return value


_FILES = """
import json, os, sys
found = {}
for path in sys.argv[1:]:
    try:
        found[path] = os.listdir(path) if os.path.isdir(path) else open(path).read()
    except OSError as error:
        found[path] = error.strerror
print(json.dumps(found))
"""


def test_it_sees_no_file_of_others(tmp_path: Path, start_instance: Start) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    for folder in (home, other):
        folder.mkdir(mode=0o755)
        (folder / "secret").write_text("the secret")
    spec_dir = tmp_path / "i"
    paths = [
        str(home / "secret"),
        str(other / "secret"),
        str(spec_dir / "spec.json"),
        str(Path.home() / ".ssh"),
        "/etc/shadow",
    ]
    found = report_of(start_instance, spec_dir, python(_FILES, *paths))
    assert set(found.values()) == {"No such file or directory"}


def test_init_cannot_be_read_or_traced(tmp_path: Path, start_instance: Start) -> None:
    found = report_of(
        start_instance, tmp_path / "i", python(_FILES, "/proc/1/environ", "/proc/1/fd", "/proc/1/maps", "/proc/1/root/")
    )
    assert set(found.values()) <= {"Permission denied"}


def test_it_sees_and_signals_its_own_processes_only(tmp_path: Path, start_instance: Start) -> None:
    other = start_instance(make_spec(tmp_path / "other", shell("echo up; sleep 600"), slot=1))
    wait_until(lambda: log_lines(other) == ["up"])
    script = "import json, os; print(json.dumps([p for p in os.listdir('/proc') if p.isdigit()]))"
    seen = json.loads(run(start_instance, make_spec(tmp_path / "i", python(script)))[-1])
    assert len(seen) == 2
    run(
        start_instance,
        make_spec(tmp_path / "killer", shell("kill -9 -1; kill -9 1; kill -9 " + str(other.state().init_pid))),
    )
    assert other.exit_record() is None


_RIGHTS = """
import ctypes, json, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    ctypes.set_errno(0)
    return "ok" if getattr(libc, name)(*arguments) == 0 else os.strerror(ctypes.get_errno())
def attempt(action):
    try:
        action()
    except OSError as error:
        return error.strerror
    return "ok"
print(json.dumps({
    "mount": call("mount", b"none", b"/tmp", b"tmpfs", 0, None),
    "remount": call("mount", b"none", b"/usr", None, 0x1000 | 0x20, None),
    "unmount": call("umount2", b"/proc", 2),
    "user namespace": call("unshare", 0x10000000),
    "mount namespace": call("unshare", 0x20000),
    "chroot": attempt(lambda: os.chroot("/tmp")),
    "root": attempt(lambda: os.setuid(0)),
    "hostname": attempt(lambda: socket.sethostname("x")),
    "device": attempt(lambda: os.mknod("/tmp/device", 0o60600, os.makedev(8, 0))),
    "raw socket": attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)),
    "sysctl": attempt(lambda: open("/proc/sys/kernel/core_pattern", "w")),
    "clock": attempt(lambda: __import__("time").clock_settime(0, 1)),
}))
"""


def test_it_has_no_rights(tmp_path: Path, start_instance: Start) -> None:
    found = report_of(start_instance, tmp_path / "i", python(_RIGHTS))
    assert {name: answer for name, answer in found.items() if answer == "ok"} == {}
    status = run(
        start_instance, make_spec(tmp_path / "s", shell("grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status"))
    )
    values = dict(line.split(":\t") for line in status)
    assert {int(values[name], 16) for name in values if name.startswith("Cap")} == {0}
    groups = run(
        start_instance, make_spec(tmp_path / "c", shell("cut -d: -f3 /proc/self/cgroup | grep trainshed; true"))
    )
    assert groups == []
    assert (values["NoNewPrivs"], values["Seccomp"]) == ("1", "2")


def test_setuid_programs_give_nothing(tmp_path: Path, start_instance: Start) -> None:
    lines = run(
        start_instance,
        make_spec(tmp_path / "i", shell("cp /usr/bin/id /tmp/id; chmod u+s /tmp/id; /tmp/id -u; su -c id; true")),
    )
    assert "uid=0" not in "".join(lines)
    assert lines[0] != "0"


def test_it_cannot_change_the_environment_or_the_system(tmp_path: Path, start_instance: Start) -> None:
    purelib = sysconfig.get_path("purelib")
    places = [purelib, str(Path(sys.base_prefix) / "lib"), "/usr/lib", "/etc", "/", "/dev"]
    script = (
        "import json, os, sys\nout = {}\nfor folder in sys.argv[1:]:\n"
        "    try: open(os.path.join(folder, 'planted'), 'w'); out[folder] = 'ok'\n"
        "    except OSError as error: out[folder] = error.strerror\nprint(json.dumps(out))"
    )
    found = report_of(start_instance, tmp_path / "i", python(script, *places))
    assert set(found) == set(places) and "ok" not in found.values()
    assert not (Path(purelib) / "planted").exists()


def test_a_link_left_in_its_folder_does_not_lead_a_bind_out(tmp_path: Path, start_instance: Start) -> None:
    ml, data = tmp_path / "ml", tmp_path / "data"
    (ml / "input").mkdir(parents=True)
    data.mkdir()
    target = tmp_path / "victim"
    target.mkdir()
    (ml / "input" / "data").symlink_to(target)
    spec = make_spec(
        tmp_path / "i",
        shell("true"),
        binds=[Bind(str(ml), "/opt/ml", writable=True), Bind(str(data), "/opt/ml/input/data/train")],
    )
    with pytest.raises(SandboxError, match="symbolic link"):
        start_instance(spec)
    assert list(target.iterdir()) == []


def test_the_network_reaches_what_is_forwarded_alone(
    tmp_path: Path, start_instance: Start, make_network: Network
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as store, socket.create_server(("0.0.0.0", 0)) as inner:
        network = make_network(tmp_path / "net")
        addresses = network.ensure(["algo-1"], {}, isolated=False)
        outward = _own_address()
        targets = [
            f"127.0.0.1:{store.getsockname()[1]}",
            f"10.210.0.1:{inner.getsockname()[1]}",
            f"{outward}:{inner.getsockname()[1]}",
        ]
        script = (
            "import json, socket, sys\nout = {}\nfor target in sys.argv[1:]:\n    host, port = target.split(':')\n"
            "    try: socket.create_connection((host, int(port)), timeout=5).close(); out[target] = 'ok'\n"
            "    except OSError as error: out[target] = 'refused'\nprint(json.dumps(out))"
        )
        found = report_of(
            start_instance,
            tmp_path / "i",
            python(script, *targets),
            hosts=addresses.hosts,
            network="cluster",
            network_dir=str(tmp_path / "net"),
        )
        assert found == dict.fromkeys(targets, "refused")


def _own_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.2"
        return str(probe.getsockname()[0])


def test_given_files_belong_to_the_job_but_not_those_of_a_cache(tmp_path: Path, start_instance: Start) -> None:
    ml, cache = tmp_path / "ml", tmp_path / "cache"
    ml.mkdir()
    (ml / "config.json").write_text("{}")
    cache.write_text("data")
    os.link(cache, ml / "data")
    (ml / "link").symlink_to(cache)
    owner = cache.stat().st_uid
    lines = run(
        start_instance,
        make_spec(
            tmp_path / "i",
            shell(
                "echo new > /opt/ml/config.json && cat /opt/ml/config.json; echo x >> /opt/ml/data || cat /opt/ml/data"
            ),
            binds=[*environment_binds(), Bind(str(ml), "/opt/ml", writable=True, give=True)],
            slot=3,
        ),
    )
    assert lines[0] == "new"
    assert cache.stat().st_uid == owner
    if os.geteuid() == 0:
        assert lines[-1] == "data" and cache.read_text() == "data"
        assert (ml / "config.json").stat().st_uid == 200_003
