"""Processes of the service forked from a server that has their modules imported, which costs a new one three seconds.

What runs is the module's own `main` in a process of its own, with variables, output and a life of its own. That a
fresh `python -m` does the same is what every test with a whole installation shows. One server for each process that
asks, begun with its first fork and ended with it: `python -m tests.support.forks` reads a request per line.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

_MODULES = {
    "trainshed_service.api": "trainshed_service.api",
    "trainshed_service.logs": "trainshed_service.logs.__main__",
    "trainshed_service.s3": "trainshed_service.s3.__main__",
}
_REPOSITORY = Path(__file__).resolve().parents[2]


class ForkedProcess:
    """As much of `subprocess.Popen` as the tests use."""

    def __init__(self, module: str, variables: Mapping[str, str], log: Path) -> None:
        self.args = module
        self.returncode: int | None = None
        self.pid: int = _SERVER.ask({"module": _MODULES[module], "variables": dict(variables), "log": str(log)})
        self._pidfd = os.pidfd_open(self.pid)
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        return self._wait(0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._wait(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._pidfd, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _wait(self, timeout: float | None) -> int | None:
        with self._lock:
            if self.returncode is None and select.select([self._pidfd], [], [], timeout)[0]:
                self.returncode = _SERVER.ask({"reap": self.pid})
                os.close(self._pidfd)
            return self.returncode


class _Server:
    """The asking side. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def ask(self, request: dict[str, Any]) -> int:
        with self._lock:
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", __name__],
                    cwd=_REPOSITORY,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            assert self._process.stdin is not None and self._process.stdout is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            return int(self._process.stdout.readline())

    def end(self) -> None:
        with self._lock:
            process, self._process = self._process, None
            if process is not None:
                process.communicate()


_SERVER = _Server()


def end_fork_server() -> None:
    """End the server of this process, if there is one. A process that was forked from it goes on."""
    _SERVER.end()


def _serve() -> Callable[[], object] | None:
    """Answer requests until their end; in a fork, what it is to run."""
    from trainshed_service.operations import load_validators

    for module in _MODULES.values():
        import_module(module)
    load_validators()
    gc.freeze()
    for line in sys.stdin:
        request = json.loads(line)
        if "reap" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["reap"], 0)[1])
        else:
            answer = os.fork()
            if answer == 0:
                return partial(_run, **request)
        print(answer, flush=True)
    return None


def _run(module: str, variables: dict[str, str], log: str) -> object:
    nothing, output = os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for source, targets in ((nothing, (0,)), (output, (1, 2))):
        for target in targets:
            os.dup2(source, target)
        os.close(source)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = [module]
    return import_module(module).main()


if __name__ == "__main__":
    work = _serve()
    if work is not None:
        sys.exit(work())  # type: ignore[arg-type]
