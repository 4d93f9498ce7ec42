"""Checkpoints of sharded models: `Checkpointer` over torch.distributed.checkpoint, and AWS's file layout."""

from trainshed_runtime.checkpoints.commit import CheckpointFailed
from trainshed_runtime.checkpoints.sharded import Checkpointer, PendingSave

__all__ = ["CheckpointFailed", "Checkpointer", "PendingSave"]
