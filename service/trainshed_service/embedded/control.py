"""Start, find and end the supervisor of a home from another process (the command line).

Invariant: a detached start returns only when the service answers, or raises with the reason; it never polls, since a
pipe to the supervisor tells of both, and of its sudden death.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from trainshed_service.embedded import pids
from trainshed_service.embedded.home import Home, UpError
from trainshed_service.embedded.parts import tail
from trainshed_service.embedded.plan import PARTS, base_environment
from trainshed_service.embedded.sweeping import sweep

_END_SECONDS = 120.0


def running(home: Home) -> pids.ProcessId | None:
    """The supervisor of this home, if it lives."""
    return pids.living(home.pid_path("supervisor"))


def start_detached(home: Home, *, port: int = 0, with_agent: bool = True) -> None:
    """Start the supervisor in the background and return when everything answers. Raises UpError."""
    read_end, write_end = os.pipe()
    command = [sys.executable, "-m", "trainshed_service.embedded", "--home", str(home.folder)]
    command += ["--port", str(port), "--ready-fd", str(write_end)]
    if not with_agent:
        command.append("--without-agent")
    tuned = {name: value for name, value in os.environ.items() if name.startswith("TRAINSHED_")}
    output_path = home.log_path("supervisor-output")
    try:
        with output_path.open("wb") as output:
            process = subprocess.Popen(
                command,
                pass_fds=(write_end,),
                env=base_environment() | tuned,
                cwd=home.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    finally:
        os.close(write_end)
    with os.fdopen(read_end) as messages:
        told = messages.read()
    if told != "ready":
        process.wait(_END_SECONDS)
        raise UpError(told or f"the supervisor ended at its start:\n{tail(output_path)}")


def end(home: Home, *, keep_jobs: bool = False) -> bool:
    """End the supervisor and all parts; False where none ran. Parts that a crash left are ended too.

    The processes of running jobs end with it, unless `keep_jobs`: then the next start takes them up again.
    """
    supervisor = running(home)
    swept = False
    if supervisor is not None:
        pids.end(supervisor, _END_SECONDS, signal.SIGUSR1 if keep_jobs else signal.SIGTERM)
        swept = not home.pid_path("supervisor").exists()  # the last that it does
    for name in PARTS:
        left = pids.living(home.pid_path(name))
        if left is not None:
            pids.end(left, grace=5.0)
        home.pid_path(name).unlink(missing_ok=True)
    home.pid_path("supervisor").unlink(missing_ok=True)
    if not keep_jobs and not swept and home.node.is_dir():
        sweep(home)
    return supervisor is not None
