"""What the ranks of test_near.py run."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from trainshed_runtime.collectives import Communicator, Lost
from trainshed_runtime.topology import Topology


def uses_memory(expected: bool) -> None:
    """Whether the node's ranks read each other's memory, and right either way."""
    world = dist.get_world_size()
    communicator = Communicator.of_group(topology=Topology(world, world))
    value = torch.full((300_000,), float(dist.get_rank()))
    communicator.all_reduce(value)
    assert bool((value == sum(range(world))).all())
    assert (communicator.links._near is not None) == expected


def one_cannot(rank: int) -> None:
    """A rank that cannot connect: the whole node goes over TCP, and nobody waits for it for long."""
    from trainshed_runtime.collectives import near

    if dist.get_rank() == rank:
        near._address = lambda said: b"\0trainshed-nobody-listens-here"
    near._SETUP_SECONDS = 0.5
    uses_memory(False)


def dies(rank: int) -> float:
    """Seconds until the others know that a rank has died in the middle; the time limit is long."""
    world = dist.get_world_size()
    communicator = Communicator.of_group(topology=Topology(world, world), timeout=timedelta(seconds=300))
    communicator.all_reduce(torch.ones(300_000))
    if dist.get_rank() == rank:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    try:
        communicator.all_reduce(torch.ones(300_000))
    except Lost as error:
        assert f"rank {rank}" in str(error) or "closed" in str(error).lower()
        return time.monotonic() - began
    raise AssertionError("nothing was noticed")
