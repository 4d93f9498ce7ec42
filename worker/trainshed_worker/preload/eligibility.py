"""Which commands may go on in a fork of a preloaded parent: those for which it makes no difference.

Invariant: in doubt a command is started as a program of its own. `fresh_reason` looks at what was asked, on the agent's
side; `Checker` at what the command will find in its sandbox, where nothing can be changed by others any more.
"""

import ast
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from trainshed_worker.preload.facts import SURROUNDINGS, ParentFacts
from trainshed_worker.sandbox.spec import Command

SWITCH = "TRAINSHED_FRESH_PROCESS"
_ACTS_AT_START = re.compile(
    r"(PYTHON|LD_|OMP_|MKL_|OPENBLAS_|GOTO_|BLIS_|VECLIB_|NUMEXPR_|KMP_|GOMP_|MALLOC_|GLIBC_|TORCH|PYTORCH|ATEN_|C10_|"
    r"DNNL_|ONEDNN_|CUDA|CUBLAS_|CUDNN_|NVIDIA_|HIP_|ROCM_|NPY_|NUMPY_|LC_|LANGUAGE$|LANG$)"
)
_SET_BY_SCRIPT = re.compile(
    rb"""["'](OMP_|MKL_|OPENBLAS_|GOTO_|BLIS_|KMP_|GOMP_|GLIBC_|ATEN_|C10_|DNNL_|ONEDNN_|NPY_|TORCH_|TORCHDYNAMO_|"""
    rb"""TORCHINDUCTOR_|PYTORCH_|TORCH)[A-Z0-9_]*["']"""
)
_MODULE_FILE = re.compile(r"(.+?)(\.(cpython|abi3)[^.]*)?\.(py|pyc|so)")
MAX_SCANNED_BYTES = 8 << 20
MAX_SCANNED_FILES = 1000
_BELOW_LINE = re.compile(r"import site; site\.addsitedir\((.+)\)")


def fresh_reason(argv: Sequence[str], env: Mapping[str, str], own: Mapping[str, str]) -> str:
    """Why a command must be a program of its own; empty where it may be forked. `own` is the job's Environment."""
    if own.get(SWITCH, "0").strip().lower() not in {"", "0", "false", "off", "no"}:
        return f"{SWITCH} is set"
    if len(argv) < 2 or not PurePosixPath(argv[0]).name.startswith("python"):
        return "it is not a Python script"
    if argv[1].startswith("-") or not argv[1].endswith(".py"):
        return "its command line is not `python script.py …`"
    named = sorted(name for name in own if _ACTS_AT_START.match(name))
    if named:
        return f"the job's Environment sets {', '.join(named)}"
    for name, value in SURROUNDINGS.items():
        if env.get(name) != value:
            return f"{name} is {env.get(name)!r}"
    return ""


class Checker:
    """`loaded`: top-level modules of the parent that a fresh interpreter would still look for on its path."""

    def __init__(self, facts: ParentFacts, loaded: frozenset[str]) -> None:
        self._facts = facts
        self._loaded = loaded

    def why_fresh(self, command: Command) -> str:
        """Inside the sandbox, as the job's user; see continuation.Check."""
        try:
            folder = os.path.dirname(os.path.realpath(command.argv[1]))
            layers = layers_of(command, self._facts)
            python_path = [part for part in command.env.get("PYTHONPATH", "").split(os.pathsep) if part]
            return (
                self._other_environment(command)
                or self._shadowed([folder, *python_path, *layers])
                or _start_files(layers)
                or _sets_variables(folder)
            )
        except OSError as error:
            return f"{error.filename or command.argv[1]} cannot be read: {error.strerror}"

    def _other_environment(self, command: Command) -> str:
        """The job's environment must be the parent's, with at most layers between it and the base."""
        folder = _site_packages(command)
        for name in os.listdir(folder):
            if name != "_below.pth":
                return f"{folder} holds {name}"
        below = _below(command)
        if below[len(below) - len(self._facts.below) :] != self._facts.below:
            return "its environment is not the parent's"
        return ""

    def _shadowed(self, folders: Iterable[str]) -> str:
        """A module of the job that has the name of one that is loaded would not be found."""
        for folder in dict.fromkeys(folders):
            try:
                entries = list(os.scandir(folder))
            except (FileNotFoundError, NotADirectoryError):
                continue
            for entry in entries:
                match = _MODULE_FILE.fullmatch(entry.name)
                name = match[1] if match else entry.name
                if name not in self._loaded:
                    continue
                if match or os.path.exists(os.path.join(entry.path, "__init__.py")):
                    return f"{entry.path} has the name of a preloaded module"
        return ""


def layers_of(command: Command, facts: ParentFacts) -> list[str]:
    """Site directories of the job's own requirements, in order."""
    below = _below(command)
    return [path for path in below[: len(below) - len(facts.below)] if os.path.isdir(path)]


def _site_packages(command: Command) -> str:
    prefix = PurePosixPath(command.argv[0]).parent.parent
    return str(prefix / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages")


def _below(command: Command) -> list[str]:
    """The directories that the environment's `_below.pth` names (`environments.skeleton` writes it)."""
    with open(os.path.join(_site_packages(command), "_below.pth"), encoding="utf-8") as file:
        found = [_BELOW_LINE.fullmatch(line.rstrip("\n")) for line in file]
    return [str(ast.literal_eval(match[1])) for match in found if match]


def _start_files(layers: Iterable[str]) -> str:
    """What would run at a fresh interpreter's start."""
    for layer in layers:
        for name in os.listdir(layer):
            if name.endswith(".pth") or name.partition(".")[0] in ("sitecustomize", "usercustomize"):
                return f"{layer} holds {name}"
    return ""


def _sets_variables(folder: str) -> str:
    """A script may set variables before it imports torch; in a fork that would be too late."""
    bytes_left, files_left = MAX_SCANNED_BYTES, MAX_SCANNED_FILES
    for base, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            if not name.endswith(".py"):
                continue
            path = os.path.join(base, name)
            with open(path, "rb") as file:
                text = file.read(bytes_left + 1)
            bytes_left -= len(text)
            files_left -= 1
            if bytes_left < 0 or files_left < 0:
                return f"{folder} holds more code than is looked through"
            match = _SET_BY_SCRIPT.search(text)
            if match:
                return f"{path} names {match[0].decode()[1:-1]}"
    return ""
