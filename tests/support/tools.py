"""System tools that some tests need beyond what pip installs, and the Debian package of each."""

from __future__ import annotations

import shutil
from pathlib import Path

DEBIAN_PACKAGES = {
    "postgres": "postgresql",
    "mpirun": "openmpi-bin",
    "gcc": "gcc",
    "unshare": "util-linux",
    "ip": "iproute2",
    "docker": "docker.io",
    "chromium": "chromium",
}


def find_tool(name: str) -> Path | None:
    """The program, also where Debian keeps it off PATH."""
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    return max(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), default=None)
