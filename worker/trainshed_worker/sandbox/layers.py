"""An overlay: a folder that a job sees and may change, while the files below it stay as they are for others.

Invariant: `lower` is only read through it. What the job changes, deletes or adds is in `upper`, of this instance alone.
"""

import os
from pathlib import Path

from trainshed_worker.sandbox import syscalls

LOWER, UPPER, WORK = "lower", "upper", "work"
_OPTIONS = f"lowerdir={LOWER},upperdir={UPPER},workdir={WORK},index=off,xino=off,redirect_dir=off,metacopy=off"


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
        try:
            syscalls.mount("overlay", str(target), "overlay", syscalls.MS_NOSUID | syscalls.MS_NODEV, _OPTIONS)
        except OSError:  # in a user namespace, attributes of overlays are to be those that users may set
            options = f"{_OPTIONS},userxattr"
            syscalls.mount("overlay", str(target), "overlay", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)
    finally:
        os.fchdir(before)
        os.close(before)
