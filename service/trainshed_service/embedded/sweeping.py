"""The end of what an agent left running, by the worker's own program. Light: the command line imports it."""

from __future__ import annotations

import logging
import subprocess

from trainshed_service.embedded import plan
from trainshed_service.embedded.home import Home

log = logging.getLogger("trainshed.supervisor")

_SWEEP_SECONDS = 120.0


def sweep(home: Home) -> None:
    """End what the agent of this home left running. What cannot be ended is said in the log."""
    done = subprocess.run(
        plan.sweep_command(home),
        env=plan.base_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SWEEP_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        log.warning("instances of jobs could not be ended: %s", (done.stdout + done.stderr).strip()[-2000:])
