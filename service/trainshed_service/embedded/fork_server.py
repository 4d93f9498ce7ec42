"""`python -m trainshed_service.embedded.fork_server FD MODULE…`: forks processes that have these modules imported.

Importing what a part of the service needs takes seconds; its fork has it at once, and shares the memory. The asking
side is `forked.ForkServer`, at the other end of the socket FD.

Invariants: the server is one thread for as long as it lives, so a fork is as good as a fresh process; it ends with the
process that asks, and every fork is killed when it ends. A child is reaped only when the asking side says so: until
then its process number stays its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import socket
import sys
import threading
from types import ModuleType
from typing import Any, NoReturn

from setproctitle import getproctitle, setproctitle

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


def main() -> int:
    control = socket.socket(fileno=int(sys.argv[1]))
    asking = os.getppid()
    die_with(asking)
    getproctitle()  # it finds the title's place in memory by the variables, which forks change
    modules = {name: importlib.import_module(name) for name in sys.argv[2:]}
    for module in modules.values():
        if hasattr(module, "preload"):
            module.preload()
    gc.collect()
    gc.freeze()
    with control, control.makefile("rw", encoding="utf-8") as requests:
        for line in requests:
            request = json.loads(line)
            if "reap" in request:
                answer = os.waitstatus_to_exitcode(os.waitpid(request["reap"], 0)[1])
            else:
                answer = _fork(request, modules, control, requests)
            requests.write(f"{answer}\n")
            requests.flush()
    return 0


def die_with(parent: int) -> None:
    """SIGKILL for this process when the thread of `parent` that started it ends; at once where it has ended already."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _fork(request: dict[str, Any], modules: dict[str, ModuleType], *server_side: Any) -> int:
    """The child's process number; in the child, it runs and does not return."""
    if threading.active_count() != 1:
        raise RuntimeError(f"{threading.enumerate()}: a module starts threads when it is imported")
    server = os.getpid()
    child = os.fork()
    if child:
        return child
    die_with(server)
    for connection in reversed(server_side):
        with contextlib.suppress(OSError):
            connection.close()
    _run(modules[request["module"]], request)


def _run(module: ModuleType, request: dict[str, Any]) -> NoReturn:
    os.setsid()
    os.umask(0o077)
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for source, targets in ((nothing, (0,)), (output, (1, 2))):
        for target in targets:
            os.dup2(source, target)
        os.close(source)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = [request["module"], *request["arguments"]]
    setproctitle(" ".join(["python", "-m", *sys.argv]))
    sys.exit(module.main())


if __name__ == "__main__":
    sys.exit(main())
