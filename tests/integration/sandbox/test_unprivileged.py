"""The same sandbox for an ordinary user, by user namespaces; and what is left where there are none."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ORDINARY_UID = 65534

_BECOME = """
import os, sys
from trainshed_worker.sandbox import syscalls
prefix, uid, *command = sys.argv[1:]
syscalls.unshare(syscalls.CLONE_NEWNS)
handle = os.open(prefix, os.O_PATH)
syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
step = "/"
for part in prefix.strip("/").split("/")[:-1]:
    step = os.path.join(step, part)
    if not os.stat(step).st_mode & 1:  # others may not pass: show what is needed, and nothing else of that folder
        syscalls.mount("tmpfs", step, "tmpfs", 0, "mode=755")
        os.makedirs(prefix)
        syscalls.mount(f"/proc/self/fd/{handle}", prefix, None, syscalls.MS_BIND | syscalls.MS_REC)
        break
os.setgroups([])
os.setresgid(int(uid), int(uid), int(uid))
os.setresuid(int(uid), int(uid), int(uid))
os.execvp(command[0], command)
"""

_DRIVER = """
import json, os, sys
from pathlib import Path
from trainshed_worker.sandbox import *
folder = Path(sys.argv[1])
env = {"PATH": "/usr/bin:/bin"}
answer = {"uid": os.getuid(), "isolation": isolation(), "findings": {f.name: f.ok for f in probe()}}
net = ClusterNetwork(folder / "net")
addresses = net.ensure(["algo-1", "algo-2"], {}, isolated=False)
(folder / "ml").mkdir()
(folder / "ml" / "before").write_text("x")
scripts = {
    "algo-1": "import socket\\ns = socket.create_server(('algo-1', 7777)); print('up', flush=True)\\n"
              "c, _ = s.accept(); print(c.recv(100).decode()); open('/opt/ml/made', 'w').write('y')",
    "algo-2": "import socket, time\\nwhile True:\\n    try: c = socket.create_connection(('algo-1', 7777)); break\\n"
              "    except ConnectionRefusedError: pass\\nc.sendall(b'hello from ' + socket.gethostname().encode())",
}
handles = {}
for slot, (name, script) in enumerate(scripts.items()):
    handles[name] = start(SandboxSpec(
        directory=str(folder / name), hostname=name, hosts=addresses.hosts, slot=slot, network="cluster",
        network_dir=str(folder / "net"), commands=[Command([sys.executable, "-c", script], env)],
        binds=[*python_binds(sys.prefix), Bind(str(folder / "ml"), "/opt/ml", writable=True, give=True)],
        memory_bytes=1 << 30,
    ))
for name, handle in handles.items():
    record = handle.wait(60)
    lines = [json.loads(line)[3] for line in handle.spool_path.read_text().splitlines()]
    answer[name] = [record.exit_code, lines, bool(handle.prove_empty())]
rights = run_once(SandboxSpec(directory=str(folder / "rights"), hostname="algo-1", commands=[Command(
    ["/bin/sh", "-c", "id -u; grep CapBnd /proc/self/status; unshare -Ur true; mount -t tmpfs x /tmp; ls " + sys.argv[1]
    ], env)]))
answer["rights"] = rights.lines
state = attach(folder / "rights").state()
answer["notices"] = state.notices
net.remove()
answer["made"] = (folder / "ml" / "made").stat().st_uid
print(json.dumps(answer))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that an ordinary user may write to."""
    path = Path(tempfile.mkdtemp(prefix="trainshed ordinary "))
    if os.geteuid() == 0:
        os.chown(path, ORDINARY_UID, ORDINARY_UID)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def run_as_ordinary_user(script: str, folder: Path) -> dict[str, object]:
    command = [sys.executable, "-c", script, str(folder)]
    if os.geteuid() == 0:
        command = [sys.executable, "-c", _BECOME, sys.base_prefix, str(ORDINARY_UID), *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    value: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return value


def test_an_ordinary_user_has_the_same_isolation(folder: Path) -> None:
    answer = run_as_ordinary_user(_DRIVER, folder)
    assert answer["uid"] != 0
    assert answer["isolation"] == "full", answer
    assert answer["algo-1"] == [0, ["up", "hello from algo-2"], True]
    assert answer["algo-2"] == [0, [], True]
    rights = answer["rights"]
    assert isinstance(rights, list)
    assert rights[:2] == ["1000", "CapBnd:\t0000000000000000"]
    assert "unshare failed" in rights[2] and "No such file" in rights[-1]
    assert answer["made"] == answer["uid"]
    if os.geteuid() == 0:
        assert any("not limited" in notice for notice in answer["notices"])  # type: ignore[attr-defined]


_PLAIN = """
import json, os, sys, time
from pathlib import Path
from trainshed_worker.sandbox import *
folder = Path(sys.argv[1])
(folder / "ml").mkdir()
env = {"PATH": "/usr/bin:/bin", "SM_MODEL_DIR": "/opt/ml/model"}
def spec(name, script, **fields):
    return SandboxSpec(directory=str(folder / name), hostname="algo-1", isolation="none", network="host",
        commands=[Command(["/bin/sh", "-c", script], env, cwd="/opt/ml")], instance_id="plain-" + name,
        binds=[Bind(str(folder / "ml"), "/opt/ml", writable=True)], **fields)
first = run_once(spec("first", "pwd; echo $SM_MODEL_DIR; (setsid sleep 600 &); exit 3"))
answer = {"first": first.lines, "code": first.record.exit_code, "reaped": first.record.reaped,
          "empty": bool(attach(folder / "first").prove_empty()), "notices": attach(folder / "first").state().notices}
deaf = "trap '' TERM; touch deaf; (trap '' TERM; setsid sleep 601 &); while :; do sleep 0.1; done"
stubborn = start(spec("second", deaf))
while not (folder / "ml" / "deaf").exists():
    time.sleep(0.01)
stubborn.stop(0.5)
record = stubborn.wait(30)
answer["second"] = [record.exit_code, record.reason, record.reaped, bool(stubborn.prove_empty())]
third = start(spec("third", "(setsid sleep 602 &); sleep 603"))
os.kill(third.state().supervisor_pid, 9)
record = third.wait(30)
answer["third"] = [record.reason, record.reaped, bool(third.prove_empty())]
print(json.dumps(answer))
"""


def test_without_isolation_processes_are_found_by_their_mark(folder: Path) -> None:
    answer = run_as_ordinary_user(_PLAIN, folder)
    assert answer["first"] == [str(folder / "ml"), str(folder / "ml" / "model")]
    assert (answer["code"], answer["reaped"], answer["empty"]) == (3, True, True)
    assert any("no isolation" in notice for notice in answer["notices"])  # type: ignore[attr-defined]
    assert answer["second"] == [137, "stopped", True, True]
    assert answer["third"] == ["supervisor-lost", True, True]
