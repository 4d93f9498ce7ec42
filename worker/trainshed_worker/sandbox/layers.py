"""An overlay: a folder that a job sees and may change, while the files below it stay as they are for others.

Invariant: `lower` is only read through it. What the job changes, deletes or adds is in `upper`, of this instance alone.
"""

import os
from pathlib import Path

from trainshed_worker.sandbox import syscalls

LOWER, UPPER, WORK = "lower", "upper", "work"
_OPTIONS = f"lowerdir={LOWER},upperdir={UPPER},workdir={WORK},index=off,xino=off"
_OF_ROOT = "redirect_dir=off,metacopy=off"
_OF_USERS = "userxattr"
"""In a user namespace: the overlay's notes are attributes that users may set (Linux 5.11); it implies those of root."""


def prepare(folder: str | Path) -> None:
    """Make the layers that are not there. May be called again."""
    for name in (LOWER, UPPER, WORK):
        os.makedirs(os.path.join(folder, name), exist_ok=True)


def show(folder: Path, target: Path) -> None:
    """Mount the overlay of `folder`'s layers on `target`. Needs the rights of a mount namespace of one's own.

    Names of the layers are relative, since a path with a comma or a colon would need quoting that kernels differ in.
    """
    before = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    os.chdir(folder)
    try:
        options = f"{_OPTIONS},{_OF_USERS if _in_user_namespace() else _OF_ROOT}"
        syscalls.mount("overlay", str(target), "overlay", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)
    finally:
        os.fchdir(before)
        os.close(before)


def _in_user_namespace() -> bool:
    """True in any but the machine's first, whose map is all numbers."""
    return Path("/proc/self/uid_map").read_text().split() != ["0", "0", "4294967295"]
