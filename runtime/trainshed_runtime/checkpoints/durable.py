"""Files and folders that survive a crash at any moment; no torch here.

Invariant: a name that a reader looks for (`newest`, a finished checkpoint's folder) appears only when what it stands
for is on the disk: contents are written under another name and flushed, then renamed, then the folder is flushed.
What a crash leaves behind begins with a dot, is never read and is swept by the next save.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import IO

NEWEST = "newest"
PARTIAL = "_partial"
_SAVING, _OLD = ".saving-", ".old-"
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


def write_file(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """`write(file)` its contents; they are on the disk, and under `path`, when this returns."""
    hidden = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with open(hidden, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(hidden, path)
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    write_file(path, lambda file: file.write(text.encode()))


def sync_folder(folder: Path) -> None:
    """The folder's entries are on the disk when this returns."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Every file and folder below is on the disk when this returns."""
    for parent, _, files in os.walk(folder):
        for name in files:
            descriptor = os.open(os.path.join(parent, name), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_folder(Path(parent))


def begin_folder(root: Path, name: str, nonce: str) -> Path:
    """The hidden folder that becomes `root/name`; it may exist. What earlier saves left unfinished is swept."""
    root.mkdir(parents=True, exist_ok=True)
    wanted = hidden_folder(root, name, nonce)
    for entry in root.iterdir():
        if entry != wanted and entry.name.startswith(".") and (_SAVING in entry.name or _OLD in entry.name):
            shutil.rmtree(entry, ignore_errors=True)
    wanted.mkdir(exist_ok=True)
    sync_folder(root)
    return wanted


def hidden_folder(root: Path, name: str, nonce: str) -> Path:
    return root / f".{name}{_SAVING}{nonce}"


def finish_folder(root: Path, name: str, nonce: str) -> None:
    """`root/name` is now the hidden folder; a folder that had the name is replaced whole."""
    new, target = hidden_folder(root, name, nonce), root / name
    sync_tree(new)
    if not target.exists():
        os.rename(new, target)
        sync_folder(root)
        return
    old = root / f".{name}{_OLD}{nonce}"
    if _exchange(new, target):
        os.rename(new, old)
    else:  # a crash between the two leaves the old one under its hidden name: `newest_name` says so
        os.rename(target, old)
        os.rename(new, target)
    sync_folder(root)
    shutil.rmtree(old)


def point_to(root: Path, name: str) -> None:
    """Make `name` the newest checkpoint of `root`. Its folder or file must be durable already."""
    if not (root / name).exists():
        raise FileNotFoundError(f"{root / name} is not there, so it cannot become the newest checkpoint")
    write_text(root / NEWEST, name)


def newest_name(root: Path) -> str:
    """The name of the newest finished checkpoint. FileNotFoundError says what is missing."""
    try:
        name = (root / NEWEST).read_text().strip()
    except FileNotFoundError:
        raise FileNotFoundError(f"{root} has no file '{NEWEST}': no checkpoint was finished there") from None
    if not name or "/" in name or not (root / name).exists():
        raise FileNotFoundError(f"{root / NEWEST} names {name!r}, which is not in {root}")
    return name


def prune(root: Path, suffix: str, kept: int, newest: str) -> list[str]:
    """Remove the oldest finished folders that end in `suffix` until `kept` are left; the newest always stays."""
    found = [entry for entry in root.iterdir() if entry.is_dir() and entry.name.endswith(suffix)]
    old = sorted(
        (entry for entry in found if entry.name != newest and not entry.name.startswith(".")),
        key=lambda entry: (entry.stat().st_mtime_ns, entry.name),
    )
    removed = []
    for entry in old[: max(0, len(old) + 1 - kept)]:
        hidden = root / f".{entry.name}{_OLD}{uuid.uuid4().hex}"
        os.rename(entry, hidden)
        sync_folder(root)
        shutil.rmtree(hidden, ignore_errors=True)
        removed.append(entry.name)
    return removed


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names in one step; False where the kernel or the filesystem cannot."""
    library = ctypes.CDLL(None, use_errno=True)
    try:
        rename = library.renameat2
    except AttributeError:
        return False
    done = rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), ctypes.c_uint(_RENAME_EXCHANGE))
    return bool(done == 0)
