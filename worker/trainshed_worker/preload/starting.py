"""Starting one preloaded parent, and handing requests to it. Blocking; the agent's side.

Invariant: a parent has an environment of its own, none of the agent's variables and descriptors, and a lower priority
than jobs until it is ready. One that does not answer in time is killed, so that what it was asked is asked elsewhere
once.
"""

import json
import os
import shutil
import socket
import subprocess
import threading
from pathlib import Path

from trainshed_worker.contract.environment import HOME, USER
from trainshed_worker.environments.base import BaseEnvironment
from trainshed_worker.environments.provide import runtime_source
from trainshed_worker.environments.skeleton import make_skeleton, site_packages
from trainshed_worker.preload.facts import MODULES, SURROUNDINGS, VARIABLE, ParentFacts

START_TIMEOUT = 180.0
"""Seconds to import everything, on a machine whose jobs go first."""
ANSWER_TIMEOUT = 2.0
"""Seconds for a fork."""
LOG_FILE = "parent.log"
_NICENESS = 10


class ParentFailed(Exception):
    """It did not start; the text says where to look."""


class PreloadedParent:
    """One process. `ask` may be called from any thread; it is `sandbox.spawn.Parent`."""

    def __init__(self, directory: Path, base: BaseEnvironment) -> None:
        """Begin to start it in `directory`, which is its own; `wait_ready` is due."""
        self.directory = directory
        self._lock = threading.Lock()
        self.ready = False
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True, mode=0o700)
        prefix = directory / "python"
        source = runtime_source()
        below = [*base.site, *([source] if source is not None else [])]
        make_skeleton(prefix, prefix, base, below, [])  # type: ignore[arg-type]
        hook = Path(__file__).with_name("hook.py")
        line = f"exec(open({str(hook)!r}).read(), {{'__name__': 'trainshed_preload', '__file__': {str(hook)!r}}})"
        (site_packages(prefix, base) / "~preload.pth").write_text(f"import sys; {line}\n")
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        log = os.open(directory / LOG_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        read_end, write_end = os.pipe()
        try:
            facts = ParentFacts(
                channel=theirs.fileno(),
                log=log,
                prefix=str(prefix),
                below=[str(path) for path in below],
                modules=list(MODULES),
                niceness=os.getpriority(os.PRIO_PROCESS, 0),
            )
            self._process = subprocess.Popen(
                [str(prefix / "bin" / "python3"), "script.py"],
                cwd="/",
                env={
                    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                    "HOME": HOME,
                    "USER": USER,
                    "OPENBLAS_NUM_THREADS": "1",  # otherwise the import of numpy leaves a thread
                    # 2^20 cycles, not 2^26: its idle threads would take a core from others for 25 ms in every fork
                    "OPENBLAS_THREAD_TIMEOUT": "20",
                    **SURROUNDINGS,
                    VARIABLE: facts.to_json(),
                },
                stdin=subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                pass_fds=(theirs.fileno(), log),
                start_new_session=True,
            )
        finally:
            for descriptor in (log, read_end, write_end):
                os.close(descriptor)
            theirs.close()
        if os.geteuid() == 0:  # only root may take it back
            os.setpriority(os.PRIO_PROCESS, self._process.pid, os.getpriority(os.PRIO_PROCESS, 0) + _NICENESS)

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_ready(self, timeout: float = START_TIMEOUT) -> None:
        """Return when it can be forked. ParentFailed where it ends or takes longer; it is gone then."""
        self._channel.settimeout(timeout)
        try:
            answer = self._channel.recv(4096)
        except OSError:  # it took too long, or was ended meanwhile
            answer = b""
        if not answer or not json.loads(answer).get("ready"):
            self.end()
            raise ParentFailed(f"the preloaded parent did not start; see {self.directory / LOG_FILE}")
        self._channel.settimeout(ANSWER_TIMEOUT)
        self.ready = True

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, message: bytes, descriptors: list[int]) -> bool:
        with self._lock:
            if not self.ready:
                return False
            try:
                socket.send_fds(self._channel, [message], descriptors)
                if self._channel.recv(1):
                    return True
            except (TimeoutError, BrokenPipeError, ConnectionResetError):
                pass
            self._end()
            return False

    def end(self) -> None:
        """End it; what was forked from it goes on."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        self.ready = False
        self._process.kill()
        self._process.wait()
        self._channel.close()
