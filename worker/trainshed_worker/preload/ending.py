"""The end of a process that was forked from a parent: what the parent had loaded is left as it is.

Invariant: what the script made or loaded is finalized as always, streams are flushed, the exit code is its own. Only
what it found made is not: to take two thousand modules and torch's operators apart would write to (and so copy) most of
the memory that the process shares with its parent, and costs half a second of a core, only to throw it all away.
"""

import atexit
import ctypes
import sys
import weakref

_OPERATORS = "torch.library"
"""Takes its operators out of torch's tables, one by one, at the end of every process that has imported torch."""
_kept: list[object] = []


def keep() -> None:
    """Call before any module is imported: what is registered first is called last, after all of the script's own."""
    atexit.register(_hide)


def remember(startup: frozenset[str]) -> None:
    """Call when all is imported: these modules are never taken apart."""
    _kept.extend(module for name, module in sys.modules.items() if name not in startup)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_kept))
    for finalizer in list(getattr(weakref.finalize, "_registry", ())):
        found = finalizer.peek()
        if found is not None and getattr(found[1], "__module__", None) == _OPERATORS:
            finalizer.atexit = False


def _hide() -> None:
    """The interpreter takes apart what it finds in sys.modules."""
    kept = set(map(id, _kept))
    for name in [name for name, module in sys.modules.items() if id(module) in kept]:
        del sys.modules[name]


def shorten() -> None:
    """Call in the forked process. C's exit() then ends after the handlers of libraries that the script has loaded and
    before those of the parent's. What is registered last runs first: streams are flushed, then the process ends."""
    libc = ctypes.CDLL(None)
    libc.on_exit(libc._exit, None)
    libc.__cxa_atexit(libc.fflush, None, None)
