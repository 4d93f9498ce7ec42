"""Processes of the service and of its agents, forked by the server that `trainshed up` has, one for each pytest worker.

A fresh one costs seconds of computing. That `python -m` of the same module does the same is what every test of
`trainshed server` and `trainshed node` shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from trainshed_service.embedded.forked import ForkedProcess, ForkServer
from trainshed_service.embedded.plan import MODULES

_SERVER = ForkServer(MODULES)


def fork(module: str, variables: Mapping[str, str], log: Path, arguments: Sequence[str] = ()) -> ForkedProcess:
    """`module`: one of `plan.MODULES`. It works in the folder of its log."""
    return _SERVER.fork(module, arguments, variables, log=log, folder=log.parent)


def end_fork_server() -> None:
    """End the server of this process, if there is one, and all that it forked."""
    _SERVER.end()


__all__ = ["ForkedProcess", "end_fork_server", "fork"]
