"""What the ranks of test_ranks.py run."""

import os
import signal

import torch
import torch.distributed as dist


def summed(value: float, own: float) -> tuple[int, float]:
    tensor = torch.full((1000,), value * own)
    dist.all_reduce(tensor)
    return dist.get_rank(), float(tensor.sum())


def numbers() -> dict[str, str]:
    return {name: os.environ[name] for name in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK")}


def fails_on(rank: int) -> None:
    print("said before")
    if dist.get_rank() == rank:
        raise ValueError("as it should")
    dist.barrier()


def dies_on(rank: int) -> None:
    if dist.get_rank() == rank:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def hangs() -> None:
    signal.pause()


def pid() -> int:
    return os.getpid()
