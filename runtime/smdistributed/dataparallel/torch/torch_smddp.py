"""Importing this makes `torch.distributed.init_process_group("smddp")` work, and nothing else."""

import trainshed_runtime.smddp.registration  # noqa: F401
