"""A sandbox made ahead for the next instance of a slot: namespaces, network link, system, and an init that waits.

Invariants: it holds nothing of a job, past or coming: it is made after the slot was proven empty, of what every
instance of the slot has alike (`fixed`). It serves one instance, and only one whose fixed part is equal; it ends, and
leaves nothing, with the agent that made it. Its folder is private to the agent.
"""

import contextlib
import os
import secrets
import shutil
import socket
from dataclasses import asdict, replace
from pathlib import Path

from trainshed_worker.sandbox import control, procs
from trainshed_worker.sandbox.container import would_hide
from trainshed_worker.sandbox.handle import STATE_FILE, prove_empty
from trainshed_worker.sandbox.network import ClusterNetwork
from trainshed_worker.sandbox.spawn import Parent, spawn
from trainshed_worker.sandbox.spec import SPEC_FILE, InstanceState, SandboxError, SandboxSpec, read_json, write_atomic

ANSWER_TIMEOUT = 2.0
"""Seconds to say that it has taken the instance."""


def fixed(spec: SandboxSpec) -> SandboxSpec:
    """What is the same for every instance of the slot in its cluster."""
    return replace(
        spec,
        directory="",
        commands=[],
        binds=[bind for bind in spec.binds if bind.common],
        grace=0.0,
        deadline=None,
        instance_id="",
        tmp_bytes=0,
    )


class SpareSandbox:
    """One spare; `ask` makes it the supervisor of an instance (it is a `spawn.Parent`)."""

    def __init__(self, directory: Path, like: SandboxSpec, *parents: Parent) -> None:
        """Make it in `directory`, which is its own, for instances like that one. Blocking. SandboxError."""
        if would_hide(like):
            raise SandboxError("what is the same for every instance here lies where an instance has folders of its own")
        self.directory = directory
        self._fixed = fixed(like)
        self._holder = _holder(like)
        discard(directory)
        directory.mkdir(parents=True, mode=0o700)
        spec = replace(self._fixed, directory=str(directory), instance_id=f"spare-{secrets.token_hex(8)}")
        write_atomic(directory / SPEC_FILE, spec.to_json())
        spawn("spare", directory, "supervisor.log", *parents)
        self._channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        with control.short_path(directory) as path:
            self._channel.connect(path)
        self._channel.settimeout(ANSWER_TIMEOUT)
        raw = read_json(directory / STATE_FILE)
        if raw is None:
            raise SandboxError(f"the spare sandbox of {directory} has left no state")
        self._state = InstanceState(**raw)

    def suits(self, spec: SandboxSpec) -> bool:
        """Whether `spec` can be started in it: its fixed part is the same, down to the process that holds its
        cluster's network."""
        return fixed(spec) == self._fixed and not would_hide(spec) and _holder(spec) == self._holder

    def differences(self, spec: SandboxSpec) -> list[str]:
        """Names of what keeps it from serving `spec`."""
        mine, wanted = asdict(self._fixed), asdict(fixed(spec))
        names = [name for name, value in mine.items() if value != wanted[name]]
        return [*names, *(["the cluster's network"] if _holder(spec) != self._holder else [])]

    def ask(self, message: bytes, descriptors: list[int]) -> bool:
        """Hand it the instance; False where it could not take it and is gone."""
        try:
            socket.send_fds(self._channel, [message], descriptors)
            if self._channel.recv(1):
                return True
        except OSError:
            pass  # it died, or does not answer
        self.end()
        return False

    def end(self) -> None:
        """End it, unless it has become an instance's supervisor; its folder stays (`discard`)."""
        self._channel.close()
        if (self.directory / STATE_FILE).exists():
            procs.send_signal(self._state.supervisor_pid, self._state.supervisor_start, 9)
            procs.wait_gone(self._state.supervisor_pid, self._state.supervisor_start, ANSWER_TIMEOUT)


def discard(directory: Path) -> None:
    """Delete the folder of a spare that has ended or serves an instance. SandboxError where one still waits in it."""
    emptiness = prove_empty(directory)
    if not emptiness:
        raise SandboxError(f"the spare sandbox in {directory} is not empty: {emptiness.reason}")
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(directory)


def _holder(spec: SandboxSpec) -> tuple[int, int] | None:
    """Who holds the cluster's network."""
    if spec.network != "cluster" or not os.path.isdir(spec.network_dir):
        return None
    state = ClusterNetwork(spec.network_dir).state()
    return (state.holder_pid, state.holder_start) if state is not None else None
