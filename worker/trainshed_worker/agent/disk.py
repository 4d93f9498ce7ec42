"""What a node keeps on its disk between jobs, in bytes, for people and for `doctor`.

Invariant: only reads, and needs no agent; sizes of a running node are those of one moment.
"""

import json
import os
import sqlite3
import stat
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Kept:
    """`what` in words; `entries` objects, layers or directories."""

    what: str
    entries: int
    bytes: int


def kept_on_disk(node: Path) -> list[Kept]:
    """Of the agent's folder `<home>/node`: cached objects, installed requirements, warm-pool cache directories."""
    objects, object_bytes = _objects(node / "cache" / "index.sqlite3")
    layers = [_layer_bytes(path) for path in (node / "envs").glob(".*.json")]
    pools = [path for path in (node / "pools").glob("*/*") if path.is_dir()]
    return [
        Kept("objects of channels and source archives", objects, object_bytes),
        Kept("installed requirements", len(layers), sum(layers)),
        Kept("warm-pool cache directories", len(pools), sum(_tree_bytes(path) for path in pools)),
    ]


def _objects(index: Path) -> tuple[int, int]:
    if not index.exists():
        return 0, 0
    database = sqlite3.connect(f"{index.absolute().as_uri()}?mode=ro", uri=True)
    try:
        row = database.execute("SELECT count(*), coalesce(sum(size), 0) FROM entries").fetchone()
        return int(row[0]), int(row[1])
    except sqlite3.DatabaseError:  # damaged, or another user's: the agent begins it anew
        return 0, 0
    finally:
        database.close()


def _layer_bytes(facts: Path) -> int:
    try:
        return int(json.loads(facts.read_text())["bytes"])
    except (FileNotFoundError, ValueError, KeyError):
        return 0


def _tree_bytes(path: Path) -> int:
    """Bytes on disk; links are not followed."""
    total = 0
    try:
        for _, _, files, descriptor in os.fwalk(path):
            for name in files:
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                total += status.st_blocks * 512 if stat.S_ISREG(status.st_mode) else 0
    except (OSError, RecursionError):
        return total  # it changes meanwhile, or is deeper than anybody's cache: a figure for people
    return total
