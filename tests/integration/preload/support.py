"""Running one script in both ways, in sandboxes that differ in nothing else."""

from __future__ import annotations

import difflib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from tests.support.wait import patient
from trainshed_worker.environments import INSIDE, Installed, describe, provide
from trainshed_worker.environments.base import own_prefix
from trainshed_worker.preload.eligibility import fresh_reason
from trainshed_worker.preload.facts import SURROUNDINGS
from trainshed_worker.preload.starting import PreloadedParent
from trainshed_worker.sandbox import Bind, Command, ExitRecord, SandboxSpec, attach, python_binds, start

CODE = PurePosixPath("/opt/ml/code")


@dataclass(frozen=True)
class Ended:
    """`fresh`: why it was no fork, by command tag (empty: it was one)."""

    record: ExitRecord
    lines: list[str]
    fresh: dict[str, str]
    directory: Path

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@dataclass
class Job:
    """A script with its files. `ranks` processes are started at once, with RANK and WORLD_SIZE."""

    script: str
    files: dict[str, str] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    name: str = "train.py"
    ranks: int = 1
    installed: Installed | None = None
    threads: int = 1
    signal_after: str = ""


def run(job: Job, directory: Path, parent: PreloadedParent | None) -> Ended:
    """Start it in a sandbox made in `directory`; as a fresh process where `parent` is None."""
    code, layer = directory / "ml" / "code", directory / "python"
    code.mkdir(parents=True)
    for name, text in {job.name: job.script, **job.files}.items():
        path = code / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    environment = provide("default", describe(own_prefix()), layer, job.installed)
    binds = [
        Bind(str(directory / "ml"), "/opt/ml", writable=True, give=True),
        Bind(str(layer), str(INSIDE), writable=True, give=True),
        *python_binds(environment.prefix, list(environment.sources)),
        *(Bind(str(source), str(inside)) for source, inside in environment.mounts),
    ]
    argv = [str(environment.python), str(CODE / job.name), *job.arguments]
    commands = []
    for rank in range(job.ranks):
        env = {
            "PATH": environment.search_path,
            "HOME": "/home/sagemaker",
            "USER": "sagemaker",
            "TMPDIR": "/tmp",
            "PYTHONPATH": str(CODE),
            "OMP_NUM_THREADS": str(job.threads),
            "MKL_NUM_THREADS": str(job.threads),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "7777",
            "RANK": str(rank),
            "WORLD_SIZE": str(job.ranks),
            **SURROUNDINGS,
            **job.env,
        }
        reason = fresh_reason(argv, env, job.env)
        commands.append(Command(argv, env, cwd=str(CODE), tag=str(rank), fresh=reason))
    spec = SandboxSpec(
        directory=str(directory / "instance"), hostname="algo-1", commands=commands, binds=binds, grace=5.0
    )
    handle = start(spec, parent)
    record = handle.wait(patient(120))
    assert record is not None, f"{job.script} did not end: {handle.spool_path.read_text()}"
    records = [json.loads(line) for line in handle.spool_path.read_text(encoding="utf-8").splitlines()]
    return Ended(record, [item[3] for item in records], handle.state().fresh, directory)


def clean(directory: Path) -> None:
    """End what a failed test left, and delete its files."""
    handle = attach(directory / "instance")
    if handle is not None and handle.exit_record() is None:
        handle.kill()
        handle.wait(patient(20))
    shutil.rmtree(directory, ignore_errors=True)


Run = Callable[[Job, PreloadedParent | None], Ended]


def _comparable(ended: Ended) -> list[str]:
    """Lines without addresses in memory and times of the day."""
    return [re.sub(r"0x[0-9a-f]{6,}|[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?", "…", line) for line in ended.lines]


def compare(job: Job, parent: PreloadedParent, run_job: Run) -> None:
    """Run it both ways; fails where anything differs, or where it was no fork."""
    forked, fresh = run_job(job, parent), run_job(job, None)
    assert set(forked.fresh.values()) == {""}
    assert set(fresh.fresh.values()) == {"no preloaded parent was ready"}
    differences = list(
        difflib.unified_diff(_comparable(fresh), _comparable(forked), "fresh", "forked", lineterm="", n=1)
    )
    assert not differences, "\n".join(differences[:200])
    assert (forked.record.exit_code, forked.record.signal) == (fresh.record.exit_code, fresh.record.signal)
