"""One supervised process: started, watched, started again with back-off, ended; its output rotated.

Invariants: a part dies with its supervisor, however that ends (the fork server sees to it). Its pid file names it for
as long as it lives. Nothing here blocks but for the start of a fork server: the supervisor's loop calls `poll`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from trainshed_service.embedded import pids
from trainshed_service.embedded.forked import ForkedProcess, ForkServer, ForkServerEnded
from trainshed_service.embedded.home import Home

_FIRST_DELAY, _LONGEST_DELAY, _STEADY = 0.1, 10.0, 30.0
LOG_LIMIT_BYTES = 16 * 1024 * 1024


@dataclass
class Part:
    """`command`: a module and its arguments. `environment` is whole. `grace`: seconds between SIGTERM and SIGKILL."""

    name: str
    home: Home
    forks: ForkServer
    command: Sequence[str]
    environment: Mapping[str, str]
    grace: float = 15.0
    report: Callable[[str], None] = print
    process: ForkedProcess | None = None
    _delay: float = _FIRST_DELAY
    _started: float = 0.0
    _due: float | None = field(default=None)

    def start(self) -> None:
        """Raises ForkServerEnded."""
        rotate(self.home.log_path(self.name))
        module, *arguments = self.command
        log = self.home.log_path(self.name)
        self.process = self.forks.fork(module, arguments, self.environment, log=log, folder=self.home.folder)
        self._started = monotonic()
        self._due = None
        pids.note(self.home.pid_path(self.name), self.process.pid)

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def poll(self) -> float | None:
        """Notice an end and start again when that is due. Returns the seconds until it is due, None while it lives."""
        if self.alive:
            rotate(self.home.log_path(self.name))
            return None
        now = monotonic()
        if self._due is None:
            if now - self._started > _STEADY:
                self._delay = _FIRST_DELAY
            code = self.process.returncode if self.process is not None else None
            self.report(f"{self.name} ended ({describe_exit(code)}); starting it again in {self._delay:.1f} s")
            self._due = now + self._delay
            self._delay = min(self._delay * 2, _LONGEST_DELAY)
        if now < self._due:
            return self._due - now
        try:
            self.start()
        except ForkServerEnded as error:
            self.report(f"{self.name} cannot be started: {error}; trying again in {self._delay:.1f} s")
            self._due = now + self._delay
            self._delay = min(self._delay * 2, _LONGEST_DELAY)
            return self._due - now
        return None

    def stop(self) -> None:
        """End it and return when it is gone; safe to call twice."""
        process = self.process
        if process is not None:
            process.terminate()
            try:
                process.wait(self.grace)
            except subprocess.TimeoutExpired:
                self.report(f"{self.name} did not end within {self.grace:.0f} s of SIGTERM; killing it")
                process.kill()
                process.wait()
        self.home.pid_path(self.name).unlink(missing_ok=True)


def describe_exit(code: int | None) -> str:
    if code is None:
        return "not started"
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


def rotate(path: Path) -> None:
    """Keep at most two files of 16 MiB. The writer holds the file open (append mode), so it is copied and emptied."""
    try:
        if path.stat().st_size <= LOG_LIMIT_BYTES:
            return
    except FileNotFoundError:
        return
    shutil.copyfile(path, path.with_name(path.name + ".1"))
    os.truncate(path, 0)


def tail(path: Path, lines: int = 20) -> str:
    """The last lines of a log, for an error message."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 64 * 1024))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return "(no log)"
