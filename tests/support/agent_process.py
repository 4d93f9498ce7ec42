"""The node agent as a process of its own, for tests that kill and restart it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.agent_protocol import TOKEN
from tests.support.forks import ForkedProcess, fork
from tests.support.wait import patient


class AgentProcess:
    """`start` again after `kill` continues on the same home."""

    def __init__(self, home: Path, server: str, slots: int = 2, options: tuple[str, ...] = ()) -> None:
        self.home = home
        self.server = server
        self.slots = slots
        self.options = options
        self.log = home.parent / "agent.log"
        token = home.parent / "token"
        token.write_text(TOKEN)
        self._arguments = ["--home", str(home), "--server", server, "--token-file", str(token)]
        self._arguments += ["--slots", str(slots), *options]
        self.process: ForkedProcess | None = None

    def start(self) -> None:
        variables = {"TRAINSHED_PRELOAD": "0", **os.environ}  # a parent takes seconds, few tests are about it
        self.process = fork("trainshed_worker.agent.__main__", variables, self.log, self._arguments)

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def terminate(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def end_all(self) -> None:
        """End the agent and everything that it left running."""
        if self.process is not None and self.process.poll() is None:
            self.kill()
        sweep = [sys.executable, "-m", "trainshed_worker.sweep", "--home", str(self.home)]
        done = subprocess.run(sweep, capture_output=True, text=True, timeout=patient(60))
        assert done.returncode == 0, done.stderr
