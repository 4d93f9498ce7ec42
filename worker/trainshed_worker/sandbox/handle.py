"""The agent's side of an instance: start it, find it again, ask it, end it, and prove that nothing of it is left.

Invariant: a handle keeps no fact in memory; each answer is read from the instance's folder and the process table, so
handles of a restarted agent are as good as the first. All calls block; none but `wait` and `run_once` for long.
"""

import json
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from trainshed_worker.sandbox import cgroups, control, plain, procs
from trainshed_worker.sandbox.spawn import Parent, spawn
from trainshed_worker.sandbox.spec import (
    SPEC_FILE,
    ExitRecord,
    InstanceState,
    SandboxError,
    SandboxSpec,
    Usage,
    read_json,
    write_atomic,
    write_durably,
)
from trainshed_worker.sandbox.spool import FILE_NAME

STATE_FILE, EXIT_FILE, SPOOL_DIR = "state.json", "exit.json", "spool"

STATE_TIMEOUT = 10.0


@dataclass(frozen=True)
class Emptiness:
    """Whether no process of an instance lives; true in a boolean context if so. `reason` is for the quarantine."""

    empty: bool
    reason: str = ""

    def __bool__(self) -> bool:
        return self.empty


@dataclass(frozen=True)
class OnceResult:
    """The end of a helper command and all that it printed (stdout and stderr, in order)."""

    record: ExitRecord
    lines: list[str]


class InstanceHandle:
    """One instance, known by its folder."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)

    @property
    def spool_path(self) -> Path:
        """The file of log records; it exists from the start on."""
        return self.directory / SPOOL_DIR / FILE_NAME

    def spec(self) -> SandboxSpec:
        return SandboxSpec.from_json((self.directory / SPEC_FILE).read_text())

    def state(self) -> InstanceState:
        """The last state on disk. See `is_alive` for whether its supervisor still lives."""
        try:
            raw = read_json(self.directory / STATE_FILE)
        except ValueError:  # a power cut took the text: whatever ran is gone too
            return InstanceState("starting", 0, 0)
        if raw is None:
            raise SandboxError(f"{self.directory} holds no started instance")
        return InstanceState(**raw)

    def is_alive(self) -> bool:
        """True while the supervisor runs."""
        state = self.state()
        return procs.is_alive(state.supervisor_pid, state.supervisor_start)

    def exit_record(self) -> ExitRecord | None:
        """How it ended; None while it runs. A supervisor that was killed leaves no record: then its remains are ended
        and a record with reason "supervisor-lost" is written, once."""
        raw = read_json(self.directory / EXIT_FILE)
        if raw is None and not self.is_alive():
            raw = read_json(self.directory / EXIT_FILE)  # it may have written the record just before it ended
            if raw is None:
                return self._record_loss()
        return ExitRecord.from_dict(raw) if raw is not None else None

    def _record_loss(self) -> ExitRecord:
        emptiness = self.prove_empty()
        state = self.state()
        record = ExitRecord(
            exit_code=137,
            signal=9,
            oom=False,
            reason="supervisor-lost",
            started_at=state.started_at,
            ended_at=time.time(),
            reaped=bool(emptiness),
            message=emptiness.reason or "the instance's supervisor was killed from outside, its processes with it",
        )
        write_durably(self.directory / EXIT_FILE, json.dumps(asdict(record)))
        return record

    def wait(self, timeout: float | None = None) -> ExitRecord | None:
        """Block until the instance has ended, at most `timeout` seconds; None where it still runs."""
        state = self.state()
        procs.wait_gone(state.supervisor_pid, state.supervisor_start, timeout)
        return self.exit_record()

    def stop(self, grace: float) -> None:
        """SIGTERM to every process, SIGKILL after `grace` seconds. Returns at once; a shorter grace replaces a longer
        one that is under way. Nothing happens where it has ended."""
        control.request(self.directory, {"op": "stop", "grace": grace})

    def kill(self) -> None:
        """SIGKILL to every process. Returns at once; also works where the supervisor is gone or hangs."""
        try:
            answer = control.request(self.directory, {"op": "kill"})
        except SandboxError:
            answer = None
        if answer is None:
            state = self.state()
            procs.send_signal(state.init_pid, state.init_start, 9)

    def usage(self) -> Usage:
        """What it uses now, from its cgroups; fields are None where the machine does not account for them."""
        return cgroups.usage(self.state().cgroups)

    def prove_empty(self, timeout: float = 10.0) -> Emptiness:
        """End whatever still lives of an instance that has no supervisor, and say whether that is proven.

        Not for a running instance: that is "not empty" and is left alone."""
        return prove_empty(self.directory, timeout)


def start(spec: SandboxSpec, *parents: Parent | None) -> InstanceHandle:
    """Start the instance; return when its processes have been started.

    `parents` (those that there are) are asked in turn to do it: a spare sandbox, a preloaded process that may be
    forked. Idempotent: a folder whose instance has already been started gives its handle. Raises SandboxError where
    the sandbox cannot be made; the folder then holds an exit record with reason "sandbox-failed" (and is empty of
    processes), except where even the supervisor did not start."""
    found = attach(spec.directory)
    if found is not None:
        return found
    if not spec.commands:
        raise SandboxError("a sandbox needs at least one command")
    if not spec.instance_id:
        spec = replace(spec, instance_id=secrets.token_hex(8))
    spec.path.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomic(spec.path / SPEC_FILE, spec.to_json())
    answer = spawn("supervisor", spec.path, "supervisor.log", *(each for each in parents if each is not None))
    if answer.get("already"):
        return _await_state(spec.path)
    return InstanceHandle(spec.path)


def _await_state(directory: Path) -> InstanceHandle:
    """Of an instance that somebody else is just starting."""
    end = time.monotonic() + STATE_TIMEOUT
    while time.monotonic() < end:
        found = attach(directory)
        if found is not None:
            return found
        time.sleep(0.01)
    raise SandboxError(f"another supervisor holds {directory} but has written no state in {STATE_TIMEOUT:g} s")


def attach(directory: str | Path) -> InstanceHandle | None:
    """The handle of an instance that was started in this folder, running or ended; None where none was."""
    handle = InstanceHandle(directory)
    return handle if (handle.directory / STATE_FILE).exists() else None


def run_once(
    spec: SandboxSpec, *, timeout: float | None = None, on_lines: Callable[[list[str]], None] | None = None
) -> OnceResult:
    """Run helper commands (pip, say) in the same isolation and wait for their end, at most `timeout` seconds (then they
    are killed and the record says "deadline"). `on_lines` gets the whole output before the call returns. The folder
    must be its own, not that of the instance."""
    if timeout is not None:
        spec = replace(spec, deadline=time.time() + timeout)
    handle = start(spec)
    record = handle.wait(None)
    if record is None:
        raise SandboxError(f"{spec.directory}: the supervisor ended without a record")
    with handle.spool_path.open(encoding="utf-8") as file:
        lines = [str(json.loads(line)[3]) for line in file]
    if on_lines is not None:
        on_lines(lines)
    return OnceResult(record, lines)


def prove_empty(directory: str | Path, timeout: float = 10.0) -> Emptiness:
    """See InstanceHandle.prove_empty. A folder in which nothing was ever started is empty."""
    handle = attach(directory)
    if handle is None:
        return Emptiness(True)
    state = handle.state()
    recorded = (handle.directory / EXIT_FILE).exists()  # then it is about to end: it needs a moment at most
    if not procs.wait_gone(state.supervisor_pid, state.supervisor_start, timeout if recorded else 0):
        return Emptiness(False, f"its supervisor (process {state.supervisor_pid}) still runs")
    if procs.is_alive(state.init_pid, state.init_start):
        procs.send_signal(state.init_pid, state.init_start, 9)
        if not procs.wait_gone(state.init_pid, state.init_start, timeout):
            return Emptiness(
                False,
                f"process {state.init_pid} (init of {directory}) did not end within {timeout:g} s of SIGKILL; "
                "a process of it is stuck in the kernel, e.g. on a dead file system. Reboot the machine to cure it",
            )
    left = plain.end_marked(state.instance_id, timeout) if state.isolation == "none" else []
    left += cgroups.remaining(state.cgroups)
    if left:
        return Emptiness(False, f"processes {', '.join(map(str, left))} of {directory} still run")
    cgroups.remove(state.cgroups)
    return Emptiness(True)
