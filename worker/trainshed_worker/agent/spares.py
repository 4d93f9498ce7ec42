"""Spare sandboxes of the agent's slots: made when a slot of a warm pool has been emptied, for the pool's next job.

Invariants: at most one per slot, made only of what the slot's last instance had in common with the next and only while
the slot is empty; one that does not suit is ended, never used; none outlives its pool, its agent, or the use of it.
Nothing waits for one: a start without a spare is as before.
"""

import itertools
import logging
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainshed_worker.sandbox import Parent, SandboxError, SandboxSpec, SpareSandbox
from trainshed_worker.sandbox.spare import discard

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Maker:
    """What is forked for an instance: a preloaded parent of an environment and role, or the plain process."""

    environment: str
    role: str
    parent: Parent | None


@dataclass(frozen=True)
class _Spare:
    sandbox: SpareSandbox
    maker: Maker
    cluster: str


class Spares:
    """Safe to call from any thread; all calls block, `take` only to end what does not suit."""

    def __init__(self, root: Path, *, enabled: bool) -> None:
        self._root = root
        self._enabled = enabled
        self._locks: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)
        """By slot: a start waits for the spare that is just being made, since two would make the slot's one link."""
        self._spares: dict[int, _Spare] = {}
        self._numbers = itertools.count(1)
        self._closed = False

    def clear(self) -> None:
        """Forget those of an earlier agent, which have ended with it."""
        if not self._root.is_dir():
            return
        for directory in self._root.iterdir():
            self._discard(directory)

    def make(self, cluster: str, spec: SandboxSpec, maker: Maker, wanted: Callable[[], bool]) -> None:
        """Have one for the next instance like `spec`, where it is still `wanted`: its slot is empty, its pool kept."""
        with self._locks[spec.slot]:
            unfit = not self._enabled or self._closed or spec.network != "cluster" or spec.slot in self._spares
            if unfit or not wanted():
                return
            directory = self._root / str(next(self._numbers))
            try:
                sandbox = SpareSandbox(directory, spec, *([maker.parent] if maker.parent is not None else []))
            except (SandboxError, OSError) as error:
                _log.warning("no spare sandbox for slot %d: %s", spec.slot, error)
                return
            self._spares[spec.slot] = _Spare(sandbox, maker, cluster)

    def take(self, spec: SandboxSpec, maker: Maker) -> SpareSandbox | None:
        """The slot's spare for this instance; `used` is due after the start."""
        with self._locks[spec.slot]:
            spare = self._spares.pop(spec.slot, None)
            if spare is None:
                return None
            if spare.maker == maker and spare.sandbox.suits(spec):
                return spare.sandbox
            _log.info("the spare sandbox of slot %d does not suit: %s", spec.slot, spare.sandbox.differences(spec))
            self._end(spare)
            return None

    def used(self, sandbox: SpareSandbox) -> None:
        """The instance runs, or its start has failed: what was the spare's own is deleted."""
        sandbox.end()
        self._discard(sandbox.directory)

    def sweep(self, kept: set[str]) -> None:
        """End those of other clusters than these."""
        for slot in list(self._spares):
            with self._locks[slot]:
                spare = self._spares.get(slot)
                if spare is not None and spare.cluster not in kept:
                    del self._spares[slot]
                    self._end(spare)

    def close(self) -> None:
        """End all of them; none is made any more."""
        self._closed = True
        for lock in list(self._locks.values()):
            with lock:
                pass  # one that is being made is there now
        self.sweep(set())

    def _end(self, spare: _Spare) -> None:
        spare.sandbox.end()
        self._discard(spare.sandbox.directory)

    @staticmethod
    def _discard(directory: Path) -> None:
        try:
            discard(directory)
        except (SandboxError, OSError) as error:
            _log.warning("%s", error)  # the agent's next start tries again
