"""A container engine: the one that answers, else one of the tests' own that leaves nothing on the machine.

Its images, containers and mounts are below a folder of the run, in a mount namespace of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.wait import wait_until


class NoEngine(Exception):
    """Why none answers and none can be started, in words."""


def answers(host: str | None = None) -> bool:
    where = ["--host", host] if host else []
    return subprocess.run(["docker", *where, "info"], capture_output=True, timeout=60, check=False).returncode == 0


@contextmanager
def container_engine(folder: Path) -> Iterator[dict[str, str]]:
    """The variables by which clients find it. Raises NoEngine."""
    if answers():
        yield {}
        return
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        raise NoEngine(
            "no container engine answers, and to start one takes root and dockerd; Debian package: docker.io"
        )
    host = f"unix://{folder}/docker.sock"
    command = ["unshare", "--mount", "dockerd", "--host", host, "--pidfile", str(folder / "pid")]
    # The networks of a cluster need no rules, and the machine keeps none afterwards.
    command += ["--bridge", "none", "--iptables=false", "--ip6tables=false"]
    command += ["--data-root", str(folder / "data"), "--exec-root", str(folder / "exec")]
    log = folder / "dockerd.log"
    with log.open("w") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        wait_until(
            lambda: process.poll() is not None or answers(host), timeout=60, what=f"an engine answers; log: {log}"
        )
        if process.poll() is not None:
            raise NoEngine(f"dockerd ended: {log.read_text()[-600:]}")
        yield {"DOCKER_HOST": host}
    finally:
        process.terminate()
        process.wait(timeout=120)
