"""What a parent is and is not, and what becomes of jobs and agent when it ends at a bad moment."""

from __future__ import annotations

import os
import re
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.preload.support import Job, Run
from tests.support.wait import patient, wait_until
from trainshed_worker.environments import describe
from trainshed_worker.environments.base import own_prefix
from trainshed_worker.preload import starting
from trainshed_worker.preload.starting import ParentFailed, PreloadedParent
from trainshed_worker.sandbox.continuation import NO_PARENT

HELLO = Job("print('hello')")


@pytest.fixture
def light_parent(monkeypatch: pytest.MonkeyPatch) -> Iterator[PreloadedParent]:
    """One of its own, without torch, to be spoilt."""
    monkeypatch.setattr(starting, "MODULES", ("json",))
    with tempfile.TemporaryDirectory(prefix="trainshed parent ") as folder:
        one = PreloadedParent(Path(folder) / "parent", describe(own_prefix()))
        try:
            one.wait_ready(patient(60))
            yield one
        finally:
            one.end()


def test_it_holds_nothing(parent: PreloadedParent) -> None:
    """Two descriptors besides its streams, one thread, no variable of ours, the priority of its agent."""
    process = Path("/proc", str(parent.pid))
    targets = sorted(os.readlink(entry) for entry in (process / "fd").iterdir())
    kinds = [re.sub(r"[0-9]+", "N", target) for target in targets]
    log = str(parent.directory / "parent.log")
    assert kinds == sorted(["/dev/null", "socket:[N]", re.sub(r"[0-9]+", "N", log), re.sub(r"[0-9]+", "N", log)])
    assert len(list((process / "task").iterdir())) == 1
    names = {item.partition(b"=")[0].decode() for item in (process / "environ").read_bytes().split(b"\0") if item}
    allowed = "PATH HOME USER OPENBLAS_NUM_THREADS OPENBLAS_THREAD_TIMEOUT LANG LC_ALL PYTHONUNBUFFERED"
    assert names == {*allowed.split(), "PYTHONDONTWRITEBYTECODE", "TRAINSHED_PRELOAD_PARENT"}
    assert os.getpriority(os.PRIO_PROCESS, parent.pid) == os.getpriority(os.PRIO_PROCESS, 0)


def test_a_job_sees_nothing_of_its_parent(parent: PreloadedParent, run_job: Run) -> None:
    """No module, no path and no text in memory that modules hold names the parent's folder or its process."""
    script = """
import gc, sys, warnings
warnings.simplefilter("ignore")
found = set()
for name, module in list(sys.modules.items()):
    for key, value in list(vars(module).items()) if hasattr(module, "__dict__") else []:
        texts = [value] if isinstance(value, (str, bytes)) else []
        if isinstance(value, dict):
            texts = [v for v in list(value.values()) + list(value) if isinstance(v, (str, bytes))]
        elif isinstance(value, (list, tuple, set, frozenset)):
            texts = [v for v in value if isinstance(v, (str, bytes))]
        for text in texts:
            text = text if isinstance(text, str) else text.decode("utf-8", "replace")
            if "trainshed parent" in text or "PRELOAD" in text:
                found.add(f"{name}.{key}: {text[:80]}")
print(sorted(found))
"""
    ended = run_job(Job(script), parent)
    assert ended.fresh == {"0": ""}
    assert ended.lines == ["[]"]


def test_two_forks_have_nothing_random_in_common(parent: PreloadedParent, run_job: Run) -> None:
    script = (
        "import random, uuid, os, tempfile, multiprocessing, secrets, torch, numpy\n"
        "print(random.random()); print(uuid.uuid4()); print(multiprocessing.current_process().authkey.hex())\n"
        "print(torch.rand(1).item(), torch.initial_seed()); print(numpy.random.rand()); print(tempfile.mktemp())\n"
        "print(secrets.token_hex(8)); print(numpy.random.default_rng().random())"
    )
    one, other = run_job(Job(script), parent), run_job(Job(script), parent)
    assert len(one.lines) == len(other.lines) == 8
    assert [line for line in one.lines if line in other.lines] == []


def test_ranks_of_one_node_are_forked_together(parent: PreloadedParent, run_job: Run) -> None:
    ended = run_job(Job("import os\nprint(os.environ['RANK'], os.environ['WORLD_SIZE'])", ranks=3), parent)
    assert sorted(ended.lines) == ["0 3", "1 3", "2 3"]
    assert ended.fresh == {"0": "", "1": "", "2": ""}


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (Job("print('hello')", env={"PYTHONHASHSEED": "0"}), "the job's Environment sets PYTHONHASHSEED"),
        (Job("print('hello')", env={"TRAINSHED_FRESH_PROCESS": "1"}), "TRAINSHED_FRESH_PROCESS is set"),
        (
            Job("import secrets\nsecrets.greet()", {"secrets.py": "def greet(): print('hello')"}),
            "secrets.py has the name",
        ),
        (Job("x = 'OMP_NUM_THREADS'\nprint('hello')"), "train.py names OMP_NUM_THREADS"),
    ],
    ids=["variable", "wish", "hidden module", "variable in the code"],
)
def test_where_it_would_differ_it_is_a_fresh_process(
    job: Job, why: str, light_parent: PreloadedParent, run_job: Run
) -> None:
    ended = run_job(job, light_parent)
    assert ended.lines == ["hello"]
    assert why in ended.fresh["0"]


def test_a_parent_that_was_killed_costs_a_job_nothing(light_parent: PreloadedParent, run_job: Run) -> None:
    os.kill(light_parent.pid, signal.SIGKILL)
    ended = run_job(HELLO, light_parent)
    assert (ended.lines, ended.fresh) == (["hello"], {"0": NO_PARENT})
    assert not light_parent.ready


def test_a_parent_that_hangs_is_ended_and_not_waited_for(
    light_parent: PreloadedParent, run_job: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    light_parent._channel.settimeout(0.2)
    os.kill(light_parent.pid, signal.SIGSTOP)
    ended = run_job(HELLO, light_parent)
    assert (ended.lines, ended.fresh) == (["hello"], {"0": NO_PARENT})
    assert not light_parent.is_alive()


def test_jobs_go_on_when_their_parent_ends(light_parent: PreloadedParent, run_job: Run) -> None:
    script = "import os, signal, time\nprint('ready'); time.sleep(1.5); print('done')"
    killer = os.fork()
    if killer == 0:  # ends the parent while the job sleeps
        try:
            wait_until(lambda: _forks_of(light_parent.pid), what="the job is forked")
            os.kill(light_parent.pid, signal.SIGKILL)
        finally:
            os._exit(0)
    ended = run_job(Job(script), light_parent)
    os.waitpid(killer, 0)
    assert ended.lines == ["ready", "done"]
    assert ended.record.exit_code == 0
    assert not light_parent.is_alive()


def _forks_of(pid: int) -> bool:
    """Whether the job's own process is there: supervisor, init, script."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for child in children:
        for init in Path(f"/proc/{child}/task/{child}/children").read_text().split():
            if Path(f"/proc/{init}/task/{init}/children").read_text().split():
                return True
    return False


def test_it_does_not_fork_when_it_has_threads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run_job: Run) -> None:
    """A module that starts a thread at its import makes a parent that refuses, and says so."""
    monkeypatch.setattr(starting, "MODULES", ("json", "antigravity_of_threads"))
    made = starting.make_skeleton

    def with_module(directory: Path, inside: Path, base: object, below: object, scripts: object) -> None:
        made(directory, inside, base, below, scripts)  # type: ignore[arg-type]
        place = next(directory.glob("lib/python3*/site-packages"))
        (place / "antigravity_of_threads.py").write_text(
            "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        )

    monkeypatch.setattr(starting, "make_skeleton", with_module)
    parent = PreloadedParent(tmp_path / "parent", describe(own_prefix()))
    try:
        parent.wait_ready(patient(60))
        ended = run_job(HELLO, parent)
        assert (ended.lines, ended.fresh) == (["hello"], {"0": NO_PARENT})
        assert "this process has threads" in (tmp_path / "parent" / "parent.log").read_text()
    finally:
        parent.end()


def test_one_that_cannot_start_says_where_to_look(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(starting, "MODULES", ("this",))
    monkeypatch.setattr(starting, "runtime_source", lambda: tmp_path / "broken")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "fault.pth").write_text("import sys; sys.stdout.flush(); __import__('os')._exit(3)\n")
    parent = PreloadedParent(tmp_path / "parent", describe(own_prefix()))
    with pytest.raises(ParentFailed, match=re.escape(str(tmp_path / "parent" / "parent.log"))):
        parent.wait_ready(patient(60))
    assert not parent.is_alive()
