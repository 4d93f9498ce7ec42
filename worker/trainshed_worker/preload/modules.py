"""What modules captured when the parent imported them, set as they would have captured it in this process.

Invariant: only modules that are loaded are touched, none is imported; `tests/integration/preload` looks through all of
them for what is still the parent's.
"""

import contextlib
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

_OPENBLAS = ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads64_", "openblas_set_num_threads")
_set_threads: list[Callable[[ctypes.c_int], Any]] = []


def renew(parent_prefix: str) -> None:
    """Call with the process's own environment, sys.executable and sys.prefix in place."""
    time.tzset()
    threading.main_thread()._set_native_id()  # type: ignore[attr-defined]
    _standard_library(parent_prefix)
    threads = _number("OMP_NUM_THREADS")
    numpy_random = sys.modules.get("numpy.random.mtrand")
    if numpy_random is not None:
        numpy_random._rand.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()
        if threads:
            torch.set_num_threads(threads)
    if threads > 1:  # they read the number when they were loaded, and it was 1 in the parent
        for set_threads in _set_threads:
            set_threads(ctypes.c_int(threads))


def _standard_library(parent_prefix: str) -> None:
    found: Callable[[str], Any] = sys.modules.get
    if process := found("multiprocessing.process"):
        process._current_process._config["authkey"] = process.AuthenticationString(os.urandom(32))
        process.ORIGINAL_DIR = os.path.abspath(os.getcwd())
    if spawn := found("multiprocessing.spawn"):
        spawn.set_executable(sys.executable)
    if tempfile := found("tempfile"):
        tempfile.tempdir = None
        tempfile._name_sequence = None
    if platform := found("platform"):
        platform._uname_cache = None
        platform._platform_cache.clear()
    if logging := found("logging"):
        logging._startTime = time.time_ns() if isinstance(logging._startTime, int) else time.time()
    if sysconfig := found("sysconfig"):
        _sysconfig(sysconfig, parent_prefix)
    if linecache := found("linecache"):
        linecache.clearcache()


def _sysconfig(module: Any, parent_prefix: str) -> None:
    for name in ("_PREFIX", "_EXEC_PREFIX"):
        if getattr(module, name, None) == parent_prefix:
            setattr(module, name, os.path.normpath(sys.prefix))
    module._CONFIG_VARS = None
    if hasattr(module, "_CONFIG_VARS_INITIALIZED"):
        module._CONFIG_VARS_INITIALIZED = False


def _number(name: str) -> int:
    """A positive whole number in the environment; 0 where there is none."""
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else 0


def remember() -> None:
    """In the parent, when all is imported: find the libraries whose thread counts are to be set in its forks."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        paths = {line.split(None, 5)[5].strip() for line in file if "openblas" in line}
    for path in sorted(paths):
        library = ctypes.CDLL(path)
        for name in _OPENBLAS:
            with contextlib.suppress(AttributeError):
                _set_threads.append(getattr(library, name))
                break
