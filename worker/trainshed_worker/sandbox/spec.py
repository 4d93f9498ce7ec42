"""What one instance is to be, and what became of it: the records that agent and supervisor exchange as files.

Invariant: everything that a supervisor needs stands in `<instance dir>/spec.json`; nothing is passed by inheritance, so
an agent that restarts reads the same facts that the supervisor acts on. Times are epoch seconds, sizes bytes.
"""

import json
import os
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

FIRST_JOB_UID = 200_000
"""Uid and gid of slot 0 where the agent is root; slot N has this plus N. Nothing else on a machine uses the range."""

NAMESPACE_JOB_UID = 1000
"""Uid and gid that a job sees inside a user namespace; outside it is the agent's own."""

SPEC_FILE = "spec.json"

NetworkMode = Literal["cluster", "none", "host"]
Isolation = Literal["full", "none"]


class SandboxError(Exception):
    """The sandbox could not be made or reached: an infrastructure fault. The text says what to do about it."""


@dataclass(frozen=True)
class Bind:
    """`source` (host path) appears at `target`. `give`: chown its files to the job's user first (never files that have
    other hard links, which belong to a cache as well). `optional`: a missing source is left out instead of an error.

    `layered`: `source` holds `lower`, and an overlay of it is shown, whose changes go to `upper` beside it: the job may
    change every file that it may write, and nothing in `lower` ever changes by that. With isolation "none" there are no
    mounts; then bind `lower` itself instead.

    `common`: the same for the next instances of this slot, so that a spare sandbox may have it already (`spare`); never
    anything of a job.
    """

    source: str
    target: str
    writable: bool = False
    give: bool = False
    optional: bool = False
    layered: bool = False
    common: bool = False


@dataclass(frozen=True)
class Command:
    """One process of the instance. All commands of a spec start together; the first failure ends the others.

    `tag` names it in the exit record (e.g. its local rank), `stream` is the host (`algo-N`) whose log stream shows its
    lines, `prefix` is put before each line, `pty` gives it a terminal instead of a pipe. `fresh` says why it must be a
    program of its own; where it is empty, `python script.py …` may go on in a preloaded parent's fork instead.
    """

    argv: list[str]
    env: dict[str, str]
    cwd: str = "/"
    tag: str = "0"
    stream: str = "algo-1"
    prefix: str = ""
    pty: bool = False
    fresh: str = "it is not a training script"


@dataclass(frozen=True)
class SandboxSpec:
    """One instance. `directory` is `<assignment dir>/instance`, say: private to the agent, holds spec, state, spool.

    `hosts` names every member (name → address) and goes to /etc/hosts. `network_dir` is the ClusterNetwork's folder,
    needed for mode "cluster"; "none" has loopback alone; "host" shares the machine's network (a cluster over several
    machines). `slot` gives the uid. Limits of 0 mean none. `grace` is used when a command fails or the deadline
    (epoch seconds) is reached. `shm_bytes` sizes /dev/shm; `devices` are host device files, e.g. /dev/nvidia0.
    """

    directory: str
    hostname: str
    commands: list[Command]
    hosts: dict[str, str] = field(default_factory=dict)
    binds: list[Bind] = field(default_factory=list)
    slot: int = 0
    network: NetworkMode = "none"
    network_dir: str = ""
    isolation: Isolation = "full"
    memory_bytes: int = 0
    pids: int = 16_384
    cpu_shares: int = 0
    shm_bytes: int = 0
    tmp_bytes: int = 0
    devices: list[str] = field(default_factory=list)
    grace: float = 10.0
    deadline: float | None = None
    instance_id: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> "SandboxSpec":
        raw: dict[str, Any] = json.loads(text)
        raw["commands"] = [Command(**command) for command in raw["commands"]]
        raw["binds"] = [Bind(**bind) for bind in raw["binds"]]
        return SandboxSpec(**raw)

    @property
    def path(self) -> Path:
        return Path(self.directory)


@dataclass(frozen=True)
class CommandExit:
    """How one command ended. Exactly one of `exit_code` and `signal` is set. `first_failure` marks the command that
    ended the gang; `by_us` is true where the supervisor had already asked it to end."""

    tag: str
    exit_code: int | None
    signal: int | None
    ended_at: float
    first_failure: bool = False
    by_us: bool = False


@dataclass(frozen=True)
class ExitRecord:
    """The end of an instance, on disk (fsync) before anybody learns of it.

    `exit_code` is that of the first failing command, 0 where all succeeded, 128 + N for signal N (139 = SIGSEGV).
    `reason`: "exited", "stopped" (stop() or kill()), "deadline", or "sandbox-failed" (then `message` says why).
    `oom`: the kernel killed a process of it for memory. `reaped`: its PID namespace's init was waited for, hence empty.
    """

    exit_code: int
    signal: int | None
    oom: bool
    reason: str
    started_at: float | None
    ended_at: float
    reaped: bool
    commands: list[CommandExit] = field(default_factory=list)
    message: str = ""
    cpu_seconds: float | None = None
    memory_peak_bytes: int | None = None
    next_seq: int = 0

    @staticmethod
    def from_dict(raw: dict[str, Any]) -> "ExitRecord":
        fields = dict(raw)
        fields["commands"] = [CommandExit(**item) for item in fields["commands"]]
        return ExitRecord(**fields)


@dataclass(frozen=True)
class InstanceState:
    """state.json: `phase` is "starting", "running", "stopping" or "exited". Process numbers are those of the agent's
    PID namespace (those of `pids`, by command tag, of the instance's own); each is valid only together with its start
    time (clock ticks since boot)."""

    phase: str
    supervisor_pid: int
    supervisor_start: int
    init_pid: int = 0
    init_start: int = 0
    started_at: float | None = None
    isolation: str = "full"
    cgroups: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    pids: dict[str, int] = field(default_factory=dict)
    instance_id: str = ""
    fresh: dict[str, str] = field(default_factory=dict)
    """By command tag: why it was executed as a program of its own; empty where a preloaded parent was forked for it."""


@dataclass(frozen=True)
class Usage:
    """What the instance has used. None where the machine offers no accounting for it."""

    cpu_seconds: float | None
    memory_bytes: int | None
    memory_peak_bytes: int | None
    processes: int | None


def write_durably(path: Path, text: str) -> None:
    """Write, sync and rename, then sync the folder: after a power cut the file is the old one or the new one, whole."""
    _replace(path, text, sync=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_atomic(path: Path, text: str) -> None:
    """Readers see the old file or the new one, whole, also where any process is killed. Not synced: for facts about
    processes, which a power cut ends as well."""
    _replace(path, text, sync=False)


def _replace(path: Path, text: str, sync: bool) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        _write_all(descriptor, text.encode())
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(temporary, path)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def read_json(path: Path) -> dict[str, Any] | None:
    """The file's object, or None where there is no such file."""
    try:
        value = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    if not isinstance(value, dict):
        raise SandboxError(f"{path} does not hold a JSON object")
    return value
