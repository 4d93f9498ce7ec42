"""The files of plain environments (those without requirements of the job's own), made once per slot and shown to each
job through an overlay: a start writes none of them, and an end deletes none.

Invariants: what is here is read by jobs through overlays alone, whose changes go elsewhere, so it stays as it was made;
it belongs to the slot's user, so that a job may change every file of its own view. An entry comes under its name whole.
Entries are deleted only while no instance exists on the machine.
"""

import hashlib
import json
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

from trainshed_worker.environments.base import BaseEnvironment
from trainshed_worker.environments.python import INSIDE
from trainshed_worker.environments.skeleton import make_skeleton
from trainshed_worker.sandbox.container import give
from trainshed_worker.sandbox.layers import LOWER
from trainshed_worker.sandbox.privileges import is_privileged, job_uid


class Skeletons:
    """All of one agent, below `root`. Safe to call from any thread."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()

    def show(
        self, slot: int, directory: Path, base: BaseEnvironment, below: Sequence[Path], scripts: Sequence[Path]
    ) -> Path:
        """Make `directory` the layers of an overlay above the slot's entry; returns the entry. May be called again."""
        entry = self._entry(slot, base, below, scripts)
        directory.mkdir(exist_ok=True)
        link = directory / LOWER
        if not link.is_symlink():
            link.symlink_to(entry)
        return entry

    def clear(self) -> None:
        """Delete all. Only while no instance exists here."""
        shutil.rmtree(self._root, ignore_errors=True)

    def _entry(self, slot: int, base: BaseEnvironment, below: Sequence[Path], scripts: Sequence[Path]) -> Path:
        changed = [folder.stat().st_mtime_ns for folder in scripts if folder.is_dir()]
        text = json.dumps([slot, base.fingerprint, [str(path) for path in below], changed])
        entry = self._root / hashlib.sha256(text.encode()).hexdigest()[:32]
        with self._lock:
            if not entry.is_dir():
                fresh = self._root / f".{entry.name}"
                shutil.rmtree(fresh, ignore_errors=True)
                self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
                fresh.mkdir()
                fresh.chmod(0o755)
                make_skeleton(fresh, INSIDE, base, below, scripts)
                if is_privileged():
                    give(str(fresh), job_uid(slot, user_namespace=False))
                fresh.rename(entry)
        return entry
