"""In the process that was forked for a script: put everything as a fresh interpreter has it at this point of its start.

Invariant: when `go_on` returns, the environment, descriptors, signals, names and paths are the command's; what modules
had captured of the parent is set anew; no module of ours is left in sys.modules. Where any step fails, the process
executes the command as a program of its own, and says so in its output.
"""

import gc
import os
import signal
import site
import sys
import types
from pathlib import Path, PurePosixPath

from trainshed_worker.preload import ending, interpreter, modules
from trainshed_worker.preload.eligibility import layers_of
from trainshed_worker.preload.facts import ParentFacts
from trainshed_worker.sandbox import syscalls
from trainshed_worker.sandbox.spec import Command

OURS = "trainshed_worker"
_ROOT = str(Path(__file__).parents[2])
_DESCRIPTORS = 1 << 20
_ours: list[str] = []


def go_on(command: Command, facts: ParentFacts) -> None:
    """See the module's docstring. The working folder, the user and the limits are the command's already."""
    try:
        gc.collect()  # objects of the sandbox's code still own descriptors; closing them later would close a script's
        os.closerange(3, _DESCRIPTORS)
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
        syscalls.set_name(PurePosixPath(command.argv[0]).name)
        _signals()
        os.environ.clear()
        os.environ.update(command.env)
        _interpreter(command, facts)
        _main_module()
        modules.renew(facts.prefix)
        ending.shorten()
        _forget_ours()
    except BaseException as error:  # noqa: BLE001 (whatever it was, a fresh process does what was asked)
        os.write(2, f"trainshed: a fresh process is started, since the preloaded one failed: {error!r}\n".encode())
        for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(command.argv[0], command.argv, command.env)


def _signals() -> None:
    """As CPython sets them at its start; the sandbox has set all to their defaults."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)


def _interpreter(command: Command, facts: ParentFacts) -> None:
    prefix = str(PurePosixPath(command.argv[0]).parent.parent)
    layers = layers_of(command, facts)
    site_paths = [path for path in sys.path if path != _ROOT]
    python_path = command.env.get("PYTHONPATH", "")
    library = sys._stdlib_dir  # type: ignore[attr-defined]
    interpreter.configure(
        run_filename=command.argv[1],
        argv=command.argv[1:],
        orig_argv=command.argv,
        program_name=command.argv[0],
        executable=command.argv[0],
        pythonpath_env=python_path or None,
    )
    sys._stdlib_dir = library  # type: ignore[attr-defined]  # CPython forgets it
    sys.prefix = sys.exec_prefix = prefix
    site.PREFIXES[:] = [prefix if path == facts.prefix else path for path in site.PREFIXES]
    own = f"{facts.prefix}/"
    paths = [os.path.abspath(part) for part in python_path.split(os.pathsep) if part]
    for path in site_paths:
        if path.startswith(own):
            paths += [prefix + path[len(facts.prefix) :], *layers]
        else:
            paths.append(path)
    sys.path[:] = dict.fromkeys(paths)
    kept = (sys.base_prefix, *facts.below)
    for path in list(sys.path_importer_cache):
        if path.startswith(own) or not path.startswith(kept):
            del sys.path_importer_cache[path]


def _main_module() -> None:
    """A new one, as empty as the old: objects from before the fork are never collected as garbage, and what a script
    leaves in its globals shall be at its end."""
    fresh = types.ModuleType("__main__")
    vars(fresh).clear()
    vars(fresh).update(vars(sys.modules["__main__"]))
    vars(fresh)["__annotations__"] = {}
    sys.modules["__main__"] = fresh


def remember_ours() -> None:
    """In the parent: to look through all names would touch, and so copy, the memory of each, in every fork."""
    _ours.extend(name for name in sys.modules if name == OURS or name.startswith(f"{OURS}."))


def _forget_ours() -> None:
    for name in _ours:
        del sys.modules[name]
