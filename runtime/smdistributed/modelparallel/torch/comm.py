"""Python objects between processes: broadcast, allgather, send and receive, and barriers.

Objects are pickled; messages between two ranks arrive in the order in which they were sent.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from smdistributed.modelparallel.torch.ranks import (
    CommGroup,
    RankType,
    process_group_of,
    rank,
    ranks_of,
    world_rank,
)
from smdistributed.modelparallel.torch.state import current

WORLD = CommGroup.WORLD
_TIMEOUT = timedelta(minutes=30)
_sent: defaultdict[int, int] = defaultdict(int)
_received: defaultdict[int, int] = defaultdict(int)


def broadcast(obj: Any, group: CommGroup = CommGroup.WORLD) -> None:
    """Send `obj` to every other rank of the group, each of which calls `recv_from` for it."""
    for other in ranks_of(group):
        if other != rank():
            send(obj, other, RankType.WORLD_RANK)


def send(obj: Any, dest_rank: int, rank_type: RankType = RankType.WORLD_RANK) -> None:
    """Send an object to one rank; returns when it is on its way."""
    target = world_rank(dest_rank, rank_type)
    key = _key(rank(), target, _sent[target])
    _sent[target] += 1
    _store().set(key, pickle.dumps(obj))


def recv_from(src_rank: int, rank_type: RankType = RankType.WORLD_RANK) -> Any:
    """The next object that a rank has sent or broadcast to this one; waits for it."""
    current()
    source = world_rank(src_rank, rank_type)
    key = _key(source, rank(), _received[source])
    store = _store()
    store.wait([key], _TIMEOUT)
    data = store.get(key)
    store.delete_key(key)
    _received[source] += 1
    return pickle.loads(data)


def allgather(obj: Any, group: CommGroup = CommGroup.WORLD) -> list[Any]:
    """The objects of all ranks of the group, in rank order; a collective call of the group."""
    found: list[Any] = [None] * len(ranks_of(group))
    dist.all_gather_object(found, obj, group=process_group_of(group))
    return found


def barrier(group: CommGroup = CommGroup.WORLD) -> None:
    """Wait until every rank of the group is here."""
    devices = [current().device.index] if current().device.type == "cuda" else None
    dist.barrier(group=process_group_of(group), device_ids=devices)


def dp_barrier() -> None:
    barrier(CommGroup.DP_GROUP)


def rdp_barrier() -> None:
    barrier(CommGroup.RDP_GROUP)


def mp_barrier() -> None:
    barrier(CommGroup.MP_GROUP)


def pp_barrier() -> None:
    barrier(CommGroup.PP_GROUP)


def tp_barrier() -> None:
    barrier(CommGroup.TP_GROUP)


def _store() -> dist.Store:
    current()
    store = dist.distributed_c10d._get_default_store()
    return dist.PrefixStore("smp/objects", store)


def _key(source: int, target: int, number: int) -> str:
    return f"{source}/{target}/{number}"


def to_device(value: Any, device: torch.device) -> Any:
    """Tensors inside of lists, tuples and mappings on the device."""
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, dict):
        return {key: to_device(item, device) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(to_device(item, device) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(to_device(item, device) for item in value)
    return value
