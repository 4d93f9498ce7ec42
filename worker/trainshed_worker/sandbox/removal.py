"""Deleting what a job has left, whatever it is.

Invariant: no symbolic link is followed; neither depth, nor names, nor modes that a job's user can set keep it from
being deleted. (`shutil.rmtree` gives up in a tree some hundred levels deep, which would cost the node a slot.)
"""

import os
import stat
from pathlib import Path

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str | Path) -> None:
    """Delete the folder and all in it; nothing happens where it is absent. OSError for what cannot be deleted.

    Folders below the first level are moved up to it and deleted there, so two descriptors do for any depth.
    """
    try:
        root = os.open(path, _OPEN)
    except FileNotFoundError:
        return
    except PermissionError:
        os.chmod(path, 0o700)
        root = os.open(path, _OPEN)
    try:
        os.fchmod(root, 0o700)
        number = 0
        while True:
            names = os.listdir(root)
            if not names:
                break
            for name in names:
                number = _remove(root, name, number)
    finally:
        os.close(root)
    os.rmdir(path)


def _remove(root: int, name: str, number: int) -> int:
    """Delete one entry of `root`, its own folders moved to `root` first; the next free number for a name."""
    status = os.stat(name, dir_fd=root, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(name, dir_fd=root)
        return number
    if status.st_mode & 0o700 != 0o700:
        os.chmod(name, 0o700, dir_fd=root)
    folder = os.open(name, _OPEN, dir_fd=root)
    try:
        for entry in os.listdir(folder):
            inner = os.stat(entry, dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISDIR(inner.st_mode):
                os.unlink(entry, dir_fd=folder)
                continue
            if inner.st_mode & 0o700 != 0o700:
                os.chmod(entry, 0o700, dir_fd=folder)
            try:
                os.rmdir(entry, dir_fd=folder)
            except OSError:
                number = _move_up(folder, entry, root, number)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=root)
    return number


def _move_up(folder: int, entry: str, root: int, number: int) -> int:
    while True:
        number += 1
        name = f".removing-{number}"
        try:
            os.stat(name, dir_fd=root, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(entry, name, src_dir_fd=folder, dst_dir_fd=root)
            return number
