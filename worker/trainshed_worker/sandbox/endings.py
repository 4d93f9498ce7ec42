"""How an instance comes to its end: which command failed first, who asked it to stop, what is to be signalled when.

Invariant: SIGTERM is due once, SIGKILL once, and a later request can only make the end come earlier. Graces run on the
monotonic clock, the deadline on the wall clock. No I/O.
"""

import os
import signal
import time
from dataclasses import replace

from trainshed_worker.sandbox.spec import CommandExit, ExitRecord, SandboxSpec


class Endings:
    """Collects the ends of the commands and decides about the rest."""

    def __init__(self, spec: SandboxSpec) -> None:
        self._spec = spec
        self._exits: dict[int, CommandExit] = {}
        self._reason = "exited"
        self._kill_at: float | None = None
        self._term_sent = False
        self.killed = False

    def stop(self, grace: float, reason: str = "stopped") -> None:
        """End it: SIGTERM now, SIGKILL after `grace` seconds. A grace of 0 skips the SIGTERM."""
        at = time.monotonic() + max(0.0, grace)
        if self._kill_at is None and self._reason == "exited":
            self._reason = reason
        self._kill_at = at if self._kill_at is None else min(self._kill_at, at)
        if grace <= 0:
            self._term_sent = True

    def command_ended(self, index: int, status: int) -> None:
        """`status` is that of wait(2). The first failure that nobody asked for ends the gang."""
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        code = None if number is not None else os.WEXITSTATUS(status)
        asked = self._kill_at is not None
        first = not asked and (number is not None or code != 0)
        tag = self._spec.commands[index].tag
        self._exits[index] = CommandExit(tag, code, number, time.time(), first_failure=first, by_us=asked)
        if first:
            self.stop(self._spec.grace, reason="exited")

    def due(self) -> list[signal.Signals]:
        """Signals to be sent to all processes now."""
        deadline = self._spec.deadline
        if deadline is not None and self._kill_at is None and time.time() >= deadline:
            self.stop(self._spec.grace, reason="deadline")
        if self._kill_at is None:
            return []
        numbers = []
        if not self._term_sent:
            self._term_sent = True
            numbers.append(signal.SIGTERM)
        if not self.killed and time.monotonic() >= self._kill_at:
            self.killed = True
            numbers.append(signal.SIGKILL)
        return numbers

    def seconds_left(self) -> float | None:
        """Until something is due; None where nothing is foreseen."""
        if self._kill_at is not None:
            if self.killed:
                return None
            return max(0.0, self._kill_at - time.monotonic()) if self._term_sent else 0.0
        if self._spec.deadline is not None:
            return min(60.0, max(0.0, self._spec.deadline - time.time()))
        return None

    def has_unasked_kill(self) -> bool:
        return any(item.signal == signal.SIGKILL and not item.by_us for item in self._exits.values())

    def record(self, started_at: float | None, failure: str, oom: bool, reaped: bool) -> ExitRecord:
        """The exit record. A command of which no end was seen was ended with init by SIGKILL."""
        now = time.time()
        commands = [
            self._exits.get(index)
            or CommandExit(command.tag, None, int(signal.SIGKILL), now, by_us=self._kill_at is not None)
            for index, command in enumerate(self._spec.commands)
        ]
        if failure:
            return ExitRecord(1, None, oom, "sandbox-failed", started_at, now, reaped, [], failure)
        failed = [item for item in commands if item.signal is not None or item.exit_code != 0]
        failed.sort(key=lambda item: (not item.first_failure, item.ended_at))
        worst = failed[0] if failed else None
        if worst is not None and not any(item.first_failure for item in commands) and self._reason == "exited":
            commands = [replace(item, first_failure=item is worst) for item in commands]
        number = worst.signal if worst is not None else None
        code = 0 if worst is None else worst.exit_code if number is None else 128 + number
        return ExitRecord(code or 0, number, oom, self._reason, started_at, now, reaped, commands)
