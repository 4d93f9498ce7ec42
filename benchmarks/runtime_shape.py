"""The sizes of the model that the runtime's benchmarks train; without torch, for the process that starts the ranks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """A GPT and its work in one micro-step of one rank. `forward_ms`: emulated per block; backward is twice that."""

    width: int = 384
    layers: int = 6
    heads: int = 6
    vocabulary: int = 8192
    sequence: int = 64
    batch: int = 2
    forward_ms: float = 0.0
    mlp: bool = False
    """Instead of a GPT: `layers` square layers of `width`, and `batch` random rows."""
