"""How a process that was forked for a command may go on in the interpreter it was forked in, instead of executing a
program: the way out of the sandbox's code for what `preload` has made ready.

Invariant: `Script` is raised only in a process that exists for one command, inside its finished sandbox; whoever
offered the continuation catches it at the interpreter's start, and every frame between lets it pass untouched.
"""

from collections.abc import Callable

from trainshed_worker.sandbox.spec import Command

Check = Callable[[Command], str]
"""Looks at a command inside its sandbox: why it needs a process of its own, or an empty text."""

NO_PARENT = "no preloaded parent was ready"
NO_ISOLATION = "the node cannot isolate jobs"
TERMINAL = "it has a terminal"

_check: Check | None = None


class Script(BaseException):
    """This process is to run `command` in the interpreter that it was forked in."""

    def __init__(self, command: Command) -> None:
        super().__init__(command.argv)
        self.command = command


def offer(check: Check) -> None:
    """Called once by a parent, before it forks anything."""
    global _check
    _check = check


def why_fresh(command: Command, isolation: str) -> str:
    """Why `command` is started as a program of its own; empty where it goes on in this interpreter."""
    if command.fresh:
        return command.fresh
    if _check is None:
        return NO_PARENT
    if isolation != "full":
        return NO_ISOLATION
    if command.pty:
        return TERMINAL
    return _check(command)
