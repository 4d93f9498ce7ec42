"""The warm-pool cache directories of this machine: one per cluster and slot, seen by that cluster's jobs alone.

Invariants: a directory is shown to jobs of its own cluster on its own slot, one after the other, and is deleted when
the cluster is neither kept nor held any more; jobs of one pool have one role, since the role is in a pool's match key.
The agent never reads below it: what a job puts there (links, pipes, any depth) is met only by `remove_tree`.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from trainshed_worker.sandbox import FIRST_JOB_UID, remove_tree


class PoolCaches:
    """All of them, below `directory`. `isolation`: False where jobs run as the agent's own user."""

    def __init__(self, directory: Path, isolation: bool) -> None:
        self._directory = directory
        self._give = isolation and os.geteuid() == 0

    def path(self, cluster_id: str, slot: int) -> Path:
        return self._directory / cluster_id / str(slot)

    def prepare(self, cluster_id: str, slot: int) -> Path:
        """Make the directory where it is not there; its own job user may write to it. Blocking, may be called again."""
        path = self.path(cluster_id, slot)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.mkdir(exist_ok=True, mode=0o700)
        if self._give:
            os.chown(path, FIRST_JOB_UID + slot, FIRST_JOB_UID + slot, follow_symlinks=False)
        return path

    async def sweep(self, kept: Callable[[], set[str]]) -> None:
        """Delete those of clusters that are not among `kept()`, asked anew for each. OSError where one cannot be."""
        if not self._directory.is_dir():
            return
        for folder in list(self._directory.iterdir()):
            if folder.name not in kept():
                await asyncio.to_thread(remove_tree, folder)
