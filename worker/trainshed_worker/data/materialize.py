"""A private copy of a file, as cheap as the file system can make it: a reflink, else a copy inside the kernel.

Invariant: `target` appears whole or not at all, with a new inode, so that no write to it reaches `source`.
"""

import errno
import fcntl
import os
import shutil
from pathlib import Path

_FICLONE = 0x40049409
_NOT_HERE = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM)


def duplicate(source: Path, target: Path, mode: int) -> None:
    """Copy `source` to `target` (replaced) with `mode`. OSError, FileNotFoundError among them."""
    temporary = target.with_name(f".{target.name[:200]}.copying")
    try:
        with source.open("rb") as origin, temporary.open("wb") as copy:
            os.fchmod(copy.fileno(), mode)
            if not _clone(origin.fileno(), copy.fileno()):
                _copy(origin.fileno(), copy.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _clone(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno in _NOT_HERE:
            return False
        raise
    return True


def _copy(source: int, target: int) -> None:
    left = os.fstat(source).st_size
    while left > 0:
        try:
            done = os.copy_file_range(source, target, left)
        except OSError as error:
            if error.errno not in _NOT_HERE:
                raise
            with os.fdopen(os.dup(source), "rb") as origin, os.fdopen(os.dup(target), "wb") as copy:
                shutil.copyfileobj(origin, copy, 1 << 20)
            return
        if done == 0:
            return  # the file has become shorter: the caller's check of its size says so
        left -= done
