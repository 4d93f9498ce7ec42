"""What a test run left on the machine: processes and mounts that name one of the run's own folders.

Every test works below these folders (pytest's base folder, and the run's TMPDIR), and everything that the tests start
names its home in its arguments, its variables, or its working or root folder. A network namespace of ours lives only
as long as the process that holds it, so it needs no look of its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event

import psutil


def leftovers(folders: Sequence[Path], patience: float = 0.0) -> list[str]:
    """One line for each thing that is left after at most `patience` seconds, in which it may still end."""
    deadline = time.monotonic() + patience
    pause = Event()
    while True:
        found = [*_processes(folders), *_mounts(folders)]
        if not found or time.monotonic() > deadline:
            return found
        pause.wait(0.2)


def _processes(folders: Sequence[Path]) -> Iterator[str]:
    me = psutil.Process()
    above = {process.pid for process in me.parents()} | {me.pid}
    for process in psutil.process_iter():
        if process.pid in above:
            continue
        try:
            if process.status() != psutil.STATUS_ZOMBIE and _names_one(process, folders):
                yield f"process {process.pid}: {' '.join(process.cmdline())[:300]}"
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue


def _names_one(process: psutil.Process, folders: Sequence[Path]) -> bool:
    texts = [*process.cmdline(), *process.environ().values(), process.cwd()]
    texts.append(_root(process.pid))
    return any(_is_below(text, folder) for text in texts for folder in folders)


def _root(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/root")
    except OSError:
        return ""


def _is_below(text: str, folder: Path) -> bool:
    """Whether the text holds the folder's path; `…/pytest-1` is not in `…/pytest-10`."""
    path = str(folder)
    at = text.find(path)
    while at >= 0:
        if text[at + len(path) : at + len(path) + 1] in ("", "/", ":", "'", '"', " "):
            return True
        at = text.find(path, at + 1)
    return False


def _mounts(folders: Sequence[Path]) -> Iterator[str]:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        where = line.split(" ")[1].encode().decode("unicode_escape")
        if any(_is_below(where, folder) for folder in folders):
            yield f"mount at {where}"
