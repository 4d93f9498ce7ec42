"""The preloaded parents of one agent: one per environment and role, started in the background, ended when unused.

Invariants: `take` never waits: it gives a parent that is ready, or the reason why there is none. A parent serves one
role alone (processes forked from one parent share its memory layout); the first one of an environment is started before
any role is known and becomes that of the first role that takes it.
"""

import logging
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from trainshed_worker.environments.base import BaseEnvironment
from trainshed_worker.preload.starting import ParentFailed, PreloadedParent
from trainshed_worker.sandbox.continuation import NO_PARENT

IDLE_SECONDS = 900.0
LIMIT = 4
"""Parents at once; the one that was unused for longest gives way. Each takes about 250 MB."""
FIRST_PAUSE, LONGEST_PAUSE = 30.0, 3600.0
"""Seconds before a parent that did not start is tried again; doubled each time."""
_log = logging.getLogger(__name__)

Key = tuple[str, str | None]
"""Fingerprint of the environment, and the role; None: nobody's yet."""


@dataclass
class _Entry:
    base: BaseEnvironment
    parent: PreloadedParent | None = None
    used: float = field(default_factory=time.monotonic)
    failures: int = 0
    not_before: float = 0.0


class Parents:
    """Safe to call from any thread; a thread of its own starts and ends them. Disabled: `take` always says so."""

    def __init__(
        self,
        directory: Path,
        *,
        enabled: bool = True,
        idle_seconds: float = IDLE_SECONDS,
        limit: int = LIMIT,
        start: Callable[[Path, BaseEnvironment], PreloadedParent] = PreloadedParent,
    ) -> None:
        self._directory = directory
        shutil.rmtree(directory, ignore_errors=True)  # of an earlier agent, whose parents ended with it
        self._enabled = enabled
        self._idle = idle_seconds
        self._limit = limit
        self._start = start
        self._changed = threading.Condition()
        self._entries: dict[Key, _Entry] = {}
        self._numbers = 0
        self._closed = False
        self._thread: threading.Thread | None = None

    def prepare(self, base: BaseEnvironment, role: str | None = None) -> None:
        """Have one started in the background for this environment and role, unless there is one."""
        if not self._enabled or base.version < (3, 11, 0):
            return
        with self._changed:
            key = (base.fingerprint, role)
            if self._closed or key in self._entries:
                return
            self._entries[key] = _Entry(base)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="preloaded parents", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def take(self, base: BaseEnvironment, role: str) -> tuple[PreloadedParent | None, str]:
        """A parent that is ready and this role's own, and why there is none. One is prepared for the next time."""
        if not self._enabled:
            return None, "preloaded parents are switched off on this node"
        with self._changed:
            mine, spare = (base.fingerprint, role), (base.fingerprint, None)
            entry = self._entries.get(mine)
            if entry is None and spare in self._entries:  # also one that is just starting
                entry = self._entries[mine] = self._entries.pop(spare)
            if entry is not None:
                entry.used = time.monotonic()
                if self._is_ready(entry):
                    return entry.parent, ""
                self._changed.notify_all()  # it may have died
        self.prepare(base, role)
        return None, NO_PARENT

    def close(self) -> None:
        """End all of them."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            parents = [entry.parent for entry in self._entries.values() if entry.parent is not None]
        for parent in parents:
            parent.end()
        if self._thread is not None:
            self._thread.join()

    @staticmethod
    def _is_ready(entry: _Entry | None) -> bool:
        return entry is not None and entry.parent is not None and entry.parent.ready and entry.parent.is_alive()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                for parent in self._surplus():
                    parent.end()
                key = self._due()
                if key is None:
                    self._changed.wait(self._pause())
                    continue
                entry = self._entries[key]
                self._numbers += 1
                directory = self._directory / str(self._numbers)
            self._start_one(entry, directory)

    def _start_one(self, entry: _Entry, directory: Path) -> None:
        """The lock is not held: it takes seconds. A second one is begun only when this one is ready."""
        try:
            parent = self._start(directory, entry.base)
            with self._changed:
                entry.parent = parent  # so that `close` finds it
                if self._closed:
                    parent.end()
                    return
            parent.wait_ready()
        except (ParentFailed, OSError) as error:
            with self._changed:
                entry.failures += 1
                pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (entry.failures - 1))
                entry.parent, entry.not_before = None, time.monotonic() + pause
                if self._closed:
                    return
            _log.warning("%s (tried again in %.0f s where a job asks for it)", error, pause)

    def _due(self) -> Key | None:
        """An entry whose parent is to be started now."""
        now = time.monotonic()
        for key, entry in self._entries.items():
            if entry.parent is not None and entry.parent.ready and not entry.parent.is_alive():
                _log.warning("the preloaded parent %d ended; a new one is started", entry.parent.pid)
                entry.parent.end()
            if (entry.parent is None or not entry.parent.ready) and entry.not_before <= now:
                return key
        return None

    def _surplus(self) -> list[PreloadedParent]:
        """Take out what is unused for long, or over the limit."""
        now = time.monotonic()
        oldest = sorted(self._entries, key=lambda key: self._entries[key].used)
        over = len(oldest) - self._limit
        gone = [key for place, key in enumerate(oldest) if place < over or now - self._entries[key].used > self._idle]
        entries = [self._entries.pop(key) for key in gone]
        return [entry.parent for entry in entries if entry.parent is not None]

    def _pause(self) -> float:
        """Seconds until something may be due."""
        now = time.monotonic()
        ends = [max(entry.used + self._idle, entry.not_before) - now for entry in self._entries.values()]
        return max(0.1, min(ends, default=3600.0))
