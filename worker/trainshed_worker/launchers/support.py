"""Files of ours that processes in the sandbox need to read: the stand-in's hook and the remote-shell agent.

The sandbox shows each of `support_paths()` read-only at the same path. Nothing here is imported by the agent.
"""

import importlib.util
from pathlib import Path

RSH_FOLDER = Path(__file__).resolve().parent / "rsh"


def runtime_folder() -> Path | None:
    """The folder of trainshed_runtime, found without importing it (it may import torch)."""
    spec = importlib.util.find_spec("trainshed_runtime")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))).resolve()


def standin_path() -> Path | None:
    """The folder that PYTHONPATH gets on stand-in instances; it holds only a sitecustomize module."""
    runtime = runtime_folder()
    if runtime is None or not (runtime / "standin_hook" / "sitecustomize.py").is_file():
        return None
    return runtime / "standin_hook"


def support_paths() -> list[Path]:
    """Folders that the sandbox must show at the same path, read-only."""
    runtime = runtime_folder()
    return [RSH_FOLDER, *([runtime] if runtime is not None else [])]
