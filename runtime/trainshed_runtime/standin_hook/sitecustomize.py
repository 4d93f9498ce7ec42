"""Loaded by Python at start where this folder is on PYTHONPATH: arranges that torch is patched when it is imported.

It imports neither torch nor anything of ours until then, and it runs the sitecustomize that it hides, if there is one,
so a process in which torch is never imported behaves as if this file did not exist.
"""

import sys
from importlib import machinery, util
from pathlib import Path
from types import ModuleType

_HERE = Path(__file__).resolve().parent


class _PatchedLoader:
    """Runs torch's own loader, then the shim."""

    def __init__(self, loader: object) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)  # type: ignore[attr-defined]
        _activate()


class _TorchFinder:
    """Finds torch as the rest of sys.meta_path does and wraps its loader; used once."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> machinery.ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec = util.find_spec("torch")
        if spec is not None and spec.loader is not None:
            spec.loader = _PatchedLoader(spec.loader)  # type: ignore[assignment]
        return spec


def _load(name: str, file: Path) -> ModuleType:
    spec = util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be loaded")
    module = util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _run_hidden() -> None:
    """The next sitecustomize on sys.path (the system's or the user's), which this file stands in front of."""
    others = [entry for entry in sys.path if entry and Path(entry).resolve() != _HERE]
    spec = machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.origin is not None:
        _load("trainshed_hidden_sitecustomize", Path(spec.origin))


def _activate() -> None:
    _load("trainshed_runtime_standin", _HERE.parent / "standin.py").activate()  # type: ignore[attr-defined]


if "torch" in sys.modules:  # a process that was forked after the import
    _activate()
else:
    sys.meta_path.insert(0, _TorchFinder())  # type: ignore[arg-type]
_run_hidden()
