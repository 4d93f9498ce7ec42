"""Sharded data parallelism as MiCS does it, on FSDP2: `Engine(module, mesh, config)`."""

from trainshed_runtime.engine.config import EngineConfig
from trainshed_runtime.engine.engine import Engine

__all__ = ["Engine", "EngineConfig"]
