"""What the engine can be told. Each field says what it means, its unit and its default."""

from __future__ import annotations

from dataclasses import dataclass

import torch

_HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class EngineConfig:
    """Fields are checked when the object is made; ValueError names the field."""

    accumulation: int = 1
    """Backward passes per optimizer step; gradients meet across replicas in the last one alone."""

    compute_dtype: torch.dtype | None = None
    """torch.bfloat16 or torch.float16: forward and backward in it, with master weights, gradients and optimizer states
    in float32. None: the parameters' own dtype throughout."""

    reduce_dtype: torch.dtype | None = None
    """The dtype in which gradients are reduced inside the partition group. None: float32 with a half compute_dtype,
    else the parameters' own. Sums over micro-steps and replicas are always in the master weights' dtype."""

    max_live_parameters: int = 1_000_000_000
    """How many parameters (elements) a rank keeps gathered between their uses in one optimizer step. Units beyond it
    are given back after each forward and backward, and gathered again."""

    persistence_threshold: int = 0
    """A wrap unit whose parameters all have fewer elements than this stays gathered for the whole optimizer step,
    whatever max_live_parameters says. Its optimizer states and gradients are sharded all the same."""

    reduce_bucket_size: int = 500_000_000
    """The most elements that one reduction takes: a block of more is wrapped in parts, and the boundary's all-reduce
    over replicas is cut into pieces of it."""

    overlap: bool = True
    """Reduce over replicas while the last backward pass still runs."""

    hierarchical: bool = True
    """Where a partition group spans nodes: gather across nodes first, then inside, and scatter the other way."""

    def __post_init__(self) -> None:
        for name in ("accumulation", "reduce_bucket_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("max_live_parameters", "persistence_threshold"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must not be negative")
        if self.compute_dtype is not None and self.compute_dtype not in _HALF:
            raise ValueError(f"compute_dtype is {self.compute_dtype}; it must be torch.float16, torch.bfloat16 or None")

    @property
    def half(self) -> bool:
        """Whether forward and backward run in a 16-bit type."""
        return self.compute_dtype is not None
