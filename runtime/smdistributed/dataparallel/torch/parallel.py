"""DistributedDataParallel of the library's first version: torch's, over the backend `smddp`."""

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel as _Torch

from smdistributed.dataparallel.torch import distributed


class DistributedDataParallel(_Torch):
    """torch's DistributedDataParallel with the first version's arguments; it starts the process group where none is."""

    def __init__(
        self,
        module: torch.nn.Module,
        device_ids: Any = None,
        output_device: Any = None,
        broadcast_buffers: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        **more: Any,
    ) -> None:
        if not distributed.is_initialized():
            distributed.init_process_group()
        super().__init__(
            module,
            device_ids=device_ids,
            output_device=output_device,
            broadcast_buffers=broadcast_buffers,
            process_group=process_group,
            bucket_cap_mb=bucket_cap_mb,
            **more,
        )
