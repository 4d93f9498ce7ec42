"""What the node's object cache holds, in a database beside it: one row per entry, with how its file looked.

Invariant: a row stands for a whole file that was there when the row was written; a file without a row is worth nothing.
So a crash between the two leaves at most a file to be deleted. One process owns the database; its threads share it.
"""

import sqlite3
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_BATCH = 500
_COLUMNS = "name, role, size, inode, mtime_ns, boot, digest"
_CREATE = """
CREATE TABLE IF NOT EXISTS entries (
    name TEXT PRIMARY KEY, role TEXT NOT NULL, size INTEGER NOT NULL, inode INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL, boot TEXT NOT NULL, digest TEXT NOT NULL, used_at REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_use ON entries (used_at);
"""


@dataclass(frozen=True)
class Entry:
    """`name` is the hash that names the file; `digest` was known to hold under this inode, time and boot."""

    name: str
    role: str
    size: int
    inode: int
    mtime_ns: int
    boot: str
    digest: str


class CacheIndex:
    """The rows. Thread-safe. `path` may hold a database of an earlier run; one that is damaged is begun anew."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.RLock()
        try:
            self._database = self._open(path)
        except sqlite3.DatabaseError:  # a power cut under a disk that lies: what it named is fetched again
            for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
                path.with_name(name).unlink(missing_ok=True)
            self._database = self._open(path)

    @staticmethod
    def _open(path: Path) -> sqlite3.Connection:
        database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        try:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=NORMAL")
            database.executescript(_CREATE)
            database.execute("SELECT count(*), sum(size) FROM entries").fetchone()
        except sqlite3.DatabaseError:
            database.close()
            raise
        return database

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def find(self, names: Iterable[str]) -> dict[str, Entry]:
        """Rows of these names, which count as used now."""
        wanted = list(dict.fromkeys(names))
        found: dict[str, Entry] = {}
        with self._lock:
            for start in range(0, len(wanted), _BATCH):
                batch = wanted[start : start + _BATCH]
                marks = ",".join("?" * len(batch))
                rows = self._database.execute(f"SELECT {_COLUMNS} FROM entries WHERE name IN ({marks})", batch)
                found.update((row[0], Entry(*row)) for row in rows.fetchall())
                self._database.execute(f"UPDATE entries SET used_at = ? WHERE name IN ({marks})", [time.time(), *batch])
        return found

    def put(self, entry: Entry) -> None:
        """Add or replace the row."""
        values = (entry.name, entry.role, entry.size, entry.inode, entry.mtime_ns, entry.boot, entry.digest)
        with self._lock:
            self._database.execute(
                f"INSERT OR REPLACE INTO entries ({_COLUMNS}, used_at) VALUES (?,?,?,?,?,?,?,?)", [*values, time.time()]
            )

    def delete(self, name: str) -> None:
        with self._lock:
            self._database.execute("DELETE FROM entries WHERE name = ?", [name])

    def oldest(self, after: tuple[float, str], count: int = 100) -> list[tuple[float, str, int]]:
        """(used_at, name, size) in the order of last use, those behind `after`."""
        with self._lock:
            return self._database.execute(
                "SELECT used_at, name, size FROM entries WHERE (used_at, name) > (?, ?) ORDER BY used_at, name LIMIT ?",
                [*after, count],
            ).fetchall()

    def names(self) -> set[str]:
        with self._lock:
            return {row[0] for row in self._database.execute("SELECT name FROM entries")}

    def totals(self) -> tuple[int, int]:
        """Number of entries and their bytes in all."""
        with self._lock:
            row = self._database.execute("SELECT count(*), coalesce(sum(size), 0) FROM entries").fetchone()
            return int(row[0]), int(row[1])
