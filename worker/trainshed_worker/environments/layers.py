"""The installed requirements on a node: which layers there are, whether they are whole, who uses them, what must go.

Invariants: a layer is used only while its files look as they did when it was sealed; one that a job on this machine was
given is not deleted before that job's files are; all layers together keep to a limit, those used longest ago going
first. The jobs of a layer are on disk, so an agent that restarts knows them.
"""

import ctypes
import hashlib
import json
import os
import stat
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainshed_worker.sandbox import remove_tree

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Fingerprint:
    """How a sealed layer looks: a hash of every name, kind, size, time and mode in it, and its bytes."""

    digest: str
    bytes: int


class LayerStore:
    """Layers below `directory`, named by `requirements.Installer`. `assignments` holds a folder per job's instance."""

    def __init__(self, directory: Path, assignments: Path, limit: int) -> None:
        self.directory = directory
        self.limit = limit
        self._assignments = assignments
        self._users = directory / ".users"
        self._lock = threading.Lock()

    def _facts(self, key: str) -> Path:
        return self.directory / f".{key}.json"

    def use(self, key: str, assignment_id: str) -> Path | None:
        """The layer, from now on held by the assignment; None where there is none in order (a damaged one is deleted).

        Call with the layer's own lock held (see Installer), so that nobody builds it meanwhile.
        """
        layer = self.directory / key
        with self._lock:
            if not layer.is_dir():
                return None
            if self._recorded(key) != fingerprint(layer):
                if self._held(key):
                    return None  # by a job that runs with it as it is; a new one is built beside it
                self._delete(key)
                return None
            self._hold(key, assignment_id)
            os.utime(layer)
            return layer

    def add(self, key: str, built: Path, assignment_id: str) -> Path:
        """Take a sealed layer in under its name and hold it for the assignment; older ones go where the limit asks."""
        found = fingerprint(built)
        _sync(built)
        layer = self.directory / key
        with self._lock:
            if layer.is_dir():
                self._set_aside(key)
            facts = self._facts(key)
            facts.write_text(json.dumps({"digest": found.digest, "bytes": found.bytes}))
            self._hold(key, assignment_id)
            os.replace(built, layer)
            os.utime(layer)
            self._evict(keep=key)
        return layer

    def bytes(self) -> int:
        """Of all layers that are in order."""
        return sum(self._size(key) for key in self._keys())

    def _keys(self) -> list[str]:
        if not self.directory.is_dir():
            return []
        return [path.name for path in self.directory.iterdir() if path.is_dir() and not path.name.startswith(".")]

    def _size(self, key: str) -> int:
        recorded = self._recorded(key)
        return recorded.bytes if recorded is not None else 0

    def _recorded(self, key: str) -> Fingerprint | None:
        try:
            raw: Any = json.loads(self._facts(key).read_text())
            return Fingerprint(str(raw["digest"]), int(raw["bytes"]))
        except (FileNotFoundError, ValueError, KeyError):  # of a crash in between, or of a version that wrote none
            return None

    def _hold(self, key: str, assignment_id: str) -> None:
        users = self._users / key
        users.mkdir(parents=True, exist_ok=True, mode=0o700)
        (users / assignment_id).touch()

    def _held(self, key: str) -> bool:
        """By a job whose files are still here."""
        users = self._users / key
        if not users.is_dir():
            return False
        held = False
        for user in users.iterdir():
            if (self._assignments / user.name).exists():
                held = True
            else:
                user.unlink(missing_ok=True)
        return held

    def _evict(self, keep: str) -> None:
        sizes = {key: self._size(key) for key in self._keys()}
        total = sum(sizes.values())
        for key in sorted(sizes, key=lambda key: (self.directory / key).stat().st_mtime):
            if total <= self.limit:
                return
            if key != keep and not self._held(key):
                self._delete(key)
                total -= sizes[key]

    def _set_aside(self, key: str) -> None:
        """A damaged layer that a running job has mounted: it stays, under a name that no start looks for."""
        number = 0
        while (aside := self.directory / f"{key}-{number}").exists():
            number += 1
        os.replace(self.directory / key, aside)
        if (self._users / key).is_dir():
            os.replace(self._users / key, self._users / aside.name)

    def _delete(self, key: str) -> None:
        """Its record first: a layer without one is not used."""
        self._facts(key).unlink(missing_ok=True)
        remove_tree(self.directory / key)
        remove_tree(self._users / key)


def fingerprint(layer: Path) -> Fingerprint:
    """How the tree looks now. Blocking: some microseconds for each file."""
    lines: list[str] = []
    total = 0
    for folder, folders, files, descriptor in os.fwalk(layer):
        folders.sort()
        place = os.path.relpath(folder, layer)
        for name in sorted([*files, *folders]):
            status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            kind = stat.S_IFMT(status.st_mode)
            if stat.S_ISDIR(status.st_mode):
                lines.append(f"{place}/{name} {kind}")
                continue
            total += status.st_size
            lines.append(f"{place}/{name} {status.st_mode} {status.st_size} {status.st_mtime_ns}")
    text = "\n".join(lines).encode("utf-8", "surrogateescape")
    return Fingerprint(hashlib.sha256(text).hexdigest(), total)


def _sync(path: Path) -> None:
    """All that was written to the file system of `path` is on disk: a power cut leaves a whole layer or no name."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _libc.syncfs(descriptor) != 0:
            raise OSError(ctypes.get_errno(), "syncfs failed", str(path))
    finally:
        os.close(descriptor)
