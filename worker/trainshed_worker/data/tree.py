"""Reading and writing a directory tree that a job's processes may change at the same moment.

Invariant: no call here follows a symbolic link, in any component of a path, and none blocks on a FIFO or opens a
device. So a job that swaps a directory for a link to the node's files makes the agent read nothing of them.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


@dataclass(frozen=True)
class Entry:
    """One thing in a tree: its path relative to the tree, what it is and how it looked when listed."""

    path: str
    kind: str
    """file, directory, link or other (socket, FIFO, device)."""
    size: int
    mtime_ns: int
    inode: int
    mode: int
    target: str | None = None
    """Where a link points, as it says."""

    @property
    def signature(self) -> tuple[int, int, int]:
        """Changes whenever the content may have changed."""
        return (self.size, self.mtime_ns, self.inode)


@contextmanager
def open_directory(root: Path, relative: str = "") -> Iterator[int]:
    """Descriptor of a directory below `root` (which the agent made and trusts). OSError where a component is a link."""
    fd = os.open(root, _DIRECTORY)
    try:
        for part in PurePosixPath(relative).parts:
            if part in ("..", "/"):
                raise ValueError(f"{relative!r} leaves its tree")
            inner = os.open(part, _DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


@contextmanager
def open_file(root: Path, relative: str) -> Iterator[int]:
    """Descriptor of a regular file below `root`. OSError (ELOOP, ENOENT, …) where it is not one now."""
    path = PurePosixPath(relative)
    with open_directory(root, str(path.parent)) as directory:
        fd = os.open(path.name, _FILE, dir_fd=directory)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.ELOOP, "not a regular file", relative)
        yield fd
    finally:
        os.close(fd)


def entry_of(path: str, status: os.stat_result, target: str | None = None) -> Entry:
    """An Entry from a stat result."""
    if stat.S_ISREG(status.st_mode):
        kind = "file"
    elif stat.S_ISDIR(status.st_mode):
        kind = "directory"
    elif stat.S_ISLNK(status.st_mode):
        kind = "link"
    else:
        kind = "other"
    return Entry(path, kind, status.st_size, status.st_mtime_ns, status.st_ino, stat.S_IMODE(status.st_mode), target)


def walk(root: Path, relative: str = "") -> Iterator[Entry]:
    """All entries below `root/relative` in name order, parents before children. What vanishes meanwhile is left out.

    A missing tree, or one that is a link, is empty.
    """
    try:
        with open_directory(root, relative) as fd:
            yield from _walk(fd, "")
    except OSError as error:
        if error.errno not in _GONE:
            raise


def _walk(fd: int, prefix: str) -> Iterator[Entry]:
    for name in sorted(os.listdir(fd)):
        path = prefix + name
        try:
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
            target = os.readlink(name, dir_fd=fd) if stat.S_ISLNK(status.st_mode) else None
        except OSError as error:
            if error.errno in (*_GONE, errno.EINVAL):
                continue
            raise
        entry = entry_of(path, status, target)
        yield entry
        if entry.kind == "directory":
            try:
                inner = os.open(name, _DIRECTORY, dir_fd=fd)
            except OSError as error:
                if error.errno in _GONE:
                    continue
                raise
            try:
                yield from _walk(inner, path + "/")
            finally:
                os.close(inner)


def link_stays_inside(link_path: str, target: str) -> bool:
    """True where a relative link at `link_path` (relative to its tree) points to a place in the same tree."""
    if target.startswith("/"):
        return False
    depth: list[str] = list(PurePosixPath(link_path).parent.parts)
    for part in PurePosixPath(target).parts:
        if part == "..":
            if not depth:
                return False
            depth.pop()
        else:
            depth.append(part)
    return True


def read_head(root: Path, relative: str, limit: int) -> bytes | None:
    """The first `limit` bytes of a regular file, None where there is none."""
    try:
        with open_file(root, relative) as fd:
            return os.pread(fd, limit, 0)
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise
