"""Registers the backend `smddp` with torch.distributed; importing the module does it, once per process."""

from torch.distributed import Backend

from trainshed_runtime.smddp.group import create

NAME = "smddp"

if not hasattr(Backend, NAME.upper()):
    Backend.register_backend(NAME, create, extended_api=True, devices=["cpu", "cuda"])
