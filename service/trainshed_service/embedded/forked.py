"""The asking side of the fork server: processes that start in tenths of a second.

Invariants: the server starts with the first process that is asked for, or by `begin`, and again where it has ended;
what it forked has ended with it. All of it may be called from any thread, but `begin` and `fork` only from one that
lives as long as the processes shall: the kernel ends them with it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO


class ForkServerEnded(Exception):
    """It was killed, or could not import the modules; what it forked is dead."""


class ForkedProcess:
    """As much of `subprocess.Popen` as its users need."""

    def __init__(self, connection: _Connection, pid: int, name: str) -> None:
        self.args = name
        self.pid = pid
        self.returncode: int | None = None
        self._connection = connection
        self._handle = os.pidfd_open(pid)
        self._lock = threading.Lock()

    def fileno(self) -> int:
        """Readable when it has ended; not to be used once `returncode` is there."""
        return self._handle

    def poll(self) -> int | None:
        return self._wait(0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._wait(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def send_signal(self, number: int) -> None:
        with self._lock:
            if self.returncode is None:
                signal.pidfd_send_signal(self._handle, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _wait(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._handle], [], [], timeout)[0]:
            with self._lock:
                if self.returncode is None:
                    self.returncode = self._exit_code()
                    os.close(self._handle)
        return self.returncode

    def _exit_code(self) -> int:
        try:
            return self._connection.ask({"reap": self.pid})
        except ForkServerEnded:
            return -signal.SIGKILL  # it was killed with the server, which alone was told of its exit


class _Connection:
    """One life of the server."""

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str] | None, output: IO[bytes] | None) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "trainshed_service.embedded.fork_server", str(theirs.fileno()), *modules]
            self.process = subprocess.Popen(
                command,
                env=None if environment is None else dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(theirs.fileno(),),
            )
        self._socket = ours
        self._answers = ours.makefile("r", encoding="ascii")
        self._lock = threading.Lock()

    def ask(self, request: Mapping[str, object]) -> int:
        with self._lock:
            try:
                self._socket.sendall(json.dumps(request).encode() + b"\n")
                answer = self._answers.readline()
            except (OSError, ValueError):  # it ended, or was ended by `close`
                answer = ""
        if not answer:
            raise ForkServerEnded(f"the process that starts all parts ended with {self.process.wait()}")
        return int(answer)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._answers.close()
        self._socket.close()


class ForkServer:
    """`modules`: what it imports and may run. `environment`, `log`: its own; inherited where not given."""

    def __init__(
        self, modules: Sequence[str], *, environment: Mapping[str, str] | None = None, log: Path | None = None
    ) -> None:
        self._modules = tuple(modules)
        self._environment = environment
        self._log = log
        self._connection: _Connection | None = None
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Let it import while its user does something else."""
        self._living()

    def fork(
        self, module: str, arguments: Sequence[str], environment: Mapping[str, str], *, log: Path, folder: Path
    ) -> ForkedProcess:
        """Run `main` of the module in a process of its own: `folder` is where it works, `log` what it prints into.

        Raises ForkServerEnded where the server cannot be started.
        """
        connection = self._living()
        request = {
            "module": module,
            "arguments": list(arguments),
            "environment": dict(environment),
            "log": str(log),
            "folder": str(folder),
        }
        return ForkedProcess(connection, connection.ask(request), module)

    def end(self) -> None:
        """End the server, and with it every process of its that still runs."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _living(self) -> _Connection:
        with self._lock:
            if self._connection is not None and self._connection.process.poll() is not None:
                self._connection.close()
                self._connection = None
            if self._connection is None:
                self._connection = self._started()
            return self._connection

    def _started(self) -> _Connection:
        if self._log is None:
            return _Connection(self._modules, self._environment, None)
        with self._log.open("ab") as output:
            return _Connection(self._modules, self._environment, output)


__all__ = ["ForkServer", "ForkServerEnded", "ForkedProcess"]
