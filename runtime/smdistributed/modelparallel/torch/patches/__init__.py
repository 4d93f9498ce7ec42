"""Stand-ins for functions of torch: `smp.patches.checkpoint`."""

from smdistributed.modelparallel.torch.patches import checkpoint

__all__ = ["checkpoint"]
