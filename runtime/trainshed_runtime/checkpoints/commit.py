"""How the ranks of a save finish it together: all files durable, then the folder's name, then `newest`; or nothing.

Invariant: `newest` names a checkpoint only if every rank reported that its own files are on the disk. A rank that fails
makes the save fail on every rank, with its reason; a rank that dies makes it fail by the control group's timeout; and
what `newest` named before stays whole. Ranks may share one filesystem or have one per node: of the ranks that see the
same one, the lowest is its leader, and leaders alone make and rename folders.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch.distributed as dist

from trainshed_runtime.checkpoints import durable


class CheckpointFailed(RuntimeError):
    """The save did not happen; the newest checkpoint is still the one before. `str` has each failed rank's reason."""


class Commit:
    """One save to `root/name`. The same calls in the same order on every rank; `group` is for control alone."""

    def __init__(self, root: Path, name: str, group: dist.ProcessGroup | None) -> None:
        self.root = root
        self.name = name
        self._group = group
        self._rank = dist.get_rank(group) if group is not None else 0
        self._nonce = self._agree_on(uuid.uuid4().hex)
        self._leads = False

    @property
    def folder(self) -> Path:
        """Where this save's files go until it is finished."""
        return durable.hidden_folder(self.root, self.name, self._nonce)

    def begin(self) -> None:
        """The folder is there, on every rank's filesystem."""
        self.together("cannot make the folder", self._probe)
        self._leads = self.together("cannot look at the folder", self._is_leader)
        self.together("cannot make the folder", self._make_folder)

    def _make_folder(self) -> None:
        self._probe_file(self._rank).unlink(missing_ok=True)
        if self._leads:
            durable.begin_folder(self.root, self.name, self._nonce)

    def write(self, write: Callable[[Path], None]) -> None:
        """`write(folder)` this rank's files, each durably; raises on every rank where it fails on one."""

        def part() -> None:
            reached("write")
            write(self.folder)
            reached("written")

        self.together("cannot write its part", part)

    def finish(self, also: Callable[[], None] | None = None) -> None:
        """Give the folder its name, then make it the newest. `also` runs on leaders at last (pruning)."""
        self.together("cannot finish the folder", self._name_folder)
        reached("named")
        self.together("cannot make it the newest", self._point)
        reached("newest")
        if also is not None and self._leads:
            also()

    def _name_folder(self) -> None:
        if self._leads:
            durable.finish_folder(self.root, self.name, self._nonce)

    def _point(self) -> None:
        if self._leads:
            durable.point_to(self.root, self.name)

    def _probe_file(self, rank: int) -> Path:
        return self.root / f".probe-{self._nonce}-{rank}"

    def _probe(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        self._probe_file(self._rank).touch()

    def _is_leader(self) -> bool:
        seen = [entry.name for entry in os.scandir(self.root) if entry.name.startswith(f".probe-{self._nonce}-")]
        return min(int(name.rsplit("-", 1)[1]) for name in seen) == self._rank

    def together(self, what: str, action: Callable[[], Any]) -> Any:
        """Run it here, and raise on every rank where it failed on one."""
        value, error = None, None
        try:
            value = action()
        except Exception as failed:  # noqa: BLE001 - it is told on every rank
            error = f"{type(failed).__name__}: {failed}"
        errors = self._gathered(error)
        if any(each is not None for each in errors):
            with suppress(OSError):
                self._probe_file(self._rank).unlink(missing_ok=True)
            reasons = {each: rank for rank, each in reversed(list(enumerate(errors))) if each is not None}
            told = "; ".join(f"rank {rank}: {each}" for each, rank in sorted(reasons.items(), key=lambda pair: pair[1]))
            raise CheckpointFailed(f"checkpoint {self.name} was not saved, {what}: {told}")
        return value

    def _gathered(self, value: str | None) -> list[str | None]:
        if self._group is None:
            return [value]
        found: list[str | None] = [None] * dist.get_world_size(self._group)
        try:
            dist.all_gather_object(found, value, group=self._group)
        except RuntimeError as error:
            raise CheckpointFailed(f"the save of {self.name} was not finished: a rank is gone ({error})") from error
        return found

    def _agree_on(self, value: str) -> str:
        """The first rank's value."""
        return str(self._gathered(value)[0])


def reached(point: str) -> None:
    """Named points of a save (write, written, named, newest), so that a test can end a rank at each."""
