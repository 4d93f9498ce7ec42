"""CPython's own configuration of a running interpreter: which script it is to run, under which name and arguments.

Invariant: used only before the interpreter has begun its script, where CPython itself still reads the configuration.
The functions are those of CPython's own tests; where one is missing, `is_supported` says so and no parent starts.
"""

import ctypes
import sys
from typing import Any

_NAMES = (
    "PyConfig_InitPythonConfig",
    "PyConfig_Clear",
    "_PyInterpreterState_GetConfigCopy",
    "_PyInterpreterState_SetConfig",
    "_PyConfig_AsDict",
    "_PyConfig_FromDict",
)
_ROOM = 1 << 14
"""Bytes for a PyConfig, which has under a thousand in all these versions."""


def is_supported() -> bool:
    known = (3, 11) <= sys.version_info[:2] <= (3, 13) and sys.implementation.name == "cpython"
    return known and all(hasattr(ctypes.pythonapi, name) for name in _NAMES)


def configure(**changes: Any) -> None:
    """Change fields of the configuration, and the `sys` attributes that follow from it (argv, path, executable …)."""
    api = ctypes.pythonapi
    api._PyConfig_AsDict.restype = ctypes.py_object
    api._PyConfig_FromDict.argtypes = [ctypes.c_void_p, ctypes.py_object]
    room = ctypes.create_string_buffer(_ROOM)
    config = ctypes.cast(room, ctypes.c_void_p)
    api.PyConfig_InitPythonConfig(config)
    try:
        api._PyInterpreterState_GetConfigCopy(config)
        api._PyConfig_FromDict(config, {**api._PyConfig_AsDict(config), **changes})
        api._PyInterpreterState_SetConfig(config)
    finally:
        api.PyConfig_Clear(config)
