"""The agent's own lines in a job's log, while no process of the job runs.

Invariant: the spool has one writer. Lines that come while the supervisor has it are kept and written after it ends.
"""

import threading
import time
from pathlib import Path

from trainshed_worker.sandbox import SandboxError, SpoolWriter


class Journal:
    """Lines for one host's stream. From any thread."""

    def __init__(self, spool: Path, stream: str) -> None:
        self._spool = spool
        self._stream = stream
        self._kept: list[tuple[int, str, str]] = []
        self._lock = threading.Lock()

    def write(self, text: str) -> None:
        """Append `text`, now or when the spool is free."""
        now = int(time.time() * 1000)
        with self._lock:
            self._kept += [(now, self._stream, line) for line in text.splitlines()]
            self._flush()

    def flush(self) -> None:
        """Write what was kept; nothing happens while the supervisor has the spool."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        if not self._kept:
            return
        try:
            writer = SpoolWriter(self._spool)
        except SandboxError:
            return
        with writer:
            writer.append(self._kept)
            writer.sync()
        self._kept = []
