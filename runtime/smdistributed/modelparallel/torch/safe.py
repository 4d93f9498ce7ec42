"""Types that public scripts put into a checkpoint's user content, so that their `torch.load` reads them.

torch.load refuses types it has not been told of, unless it is given weights_only=False; scripts and merge tools of the
library's time give nothing. Registered are plain data alone: numpy's numbers and arrays, argparse's namespaces and the
configurations of transformers' models, which are known once transformers is imported.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import torch


def register_types() -> None:
    """Call again when transformers may have been imported since."""
    found: list[Any] = [argparse.Namespace]
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        core = sys.modules.get("numpy._core.multiarray") or sys.modules["numpy.core.multiarray"]
        found += [numpy.ndarray, numpy.dtype, core.scalar, core._reconstruct]
        found += sorted({type(numpy.dtype(code)) for code in "?bBhHiIlLqQefdg"}, key=lambda kind: kind.__name__)
    base = getattr(sys.modules.get("transformers.configuration_utils"), "PretrainedConfig", None)
    pending = [base] if base is not None else []
    while pending:
        kind = pending.pop()
        found.append(kind)
        pending.extend(kind.__subclasses__())
    torch.serialization.add_safe_globals(found)
