"""Takes a built layer away from the user that built it: from then on every instance reads it and none changes it.

Invariant: a sealed tree belongs to the agent, everybody can read it (the folder around it shows it to nobody but those
that it is mounted for), and nothing in it runs as anybody but its caller. Links are left alone, never followed.
"""

import os
import stat


def seal(path: str) -> None:
    """Blocking; OSError where the tree cannot be changed. May be called again."""
    mine = os.geteuid() == 0
    for _, _, files, folder in os.fwalk(path):
        for name in files:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
                continue
            descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            try:
                runs = status.st_mode & stat.S_IXUSR
                _give(f"/proc/self/fd/{descriptor}", 0o755 if runs else 0o644, mine)
            finally:
                os.close(descriptor)
        _give(folder, 0o755, mine)


def _give(target: str | int, mode: int, mine: bool) -> None:
    if mine:
        os.chown(target, 0, 0)
    os.chmod(target, mode)
