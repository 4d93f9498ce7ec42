"""Small files that survive a crash at any line: written aside, synced (where asked), renamed, the folder synced."""

import json
import os
from pathlib import Path
from typing import Any


def write_atomic(path: Path, content: str, mode: int = 0o600, *, sync: bool = True) -> None:
    """Replace `path`; after a crash it holds the old content or the new, whole.

    Without `sync` that holds for a crash of processes alone, not of the machine, and it does not wait for the disk.
    """
    temporary = path.with_name(f".{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(content)
        file.flush()
        if sync:
            os.fsync(file.fileno())
    os.replace(temporary, path)
    if sync:
        sync_directory(path.parent)


def sync_file(path: Path) -> None:
    """Return when the file and its name are on disk as they are now."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Return when the names in `path` are on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_json(path: Path) -> Any | None:
    """The file's JSON value; None where there is no file. ValueError where it is no JSON (never after write_atomic)."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
