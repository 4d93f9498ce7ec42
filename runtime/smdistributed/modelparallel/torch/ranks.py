"""Ranks, sizes and groups. With one tensor and one pipeline rank, all ranks are data parallel ranks.

Invariant: `tp`, `pp` and `mp` groups are this rank alone; `dp` and `rdp` groups are the world, in rank order.
"""

from __future__ import annotations

import os
from enum import Enum

import torch.distributed as dist

from smdistributed.modelparallel.torch.state import current


class CommGroup(Enum):
    """The groups that communication functions take."""

    WORLD = 0
    PP_GROUP = 1
    TP_GROUP = 2
    DP_GROUP = 3
    RDP_GROUP = 4
    MP_GROUP = 5


class RankType(Enum):
    """How a rank that is given to a communication function is counted."""

    WORLD_RANK = 0
    PP_RANK = 1
    TP_RANK = 2
    DP_RANK = 3
    RDP_RANK = 4
    MP_RANK = 5


WORLD = CommGroup.WORLD
PP_GROUP = CommGroup.PP_GROUP
TP_GROUP = CommGroup.TP_GROUP
DP_GROUP = CommGroup.DP_GROUP
RDP_GROUP = CommGroup.RDP_GROUP
MP_GROUP = CommGroup.MP_GROUP
_ALONE = {"PP", "TP", "MP"}


def rank() -> int:
    """This process's rank in the world."""
    return current().mesh.rank


def size() -> int:
    """How many processes there are."""
    return current().mesh.world_size


def local_rank() -> int:
    """This process's place on its instance."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def local_size() -> int:
    """How many processes there are on this instance."""
    return current().mesh.topology.ranks_per_node


def dp_rank() -> int:
    return rank()


def dp_size() -> int:
    return size()


def rdp_rank() -> int:
    return rank()


def rdp_size() -> int:
    return size()


def tp_rank() -> int:
    current()
    return 0


def tp_size() -> int:
    current()
    return 1


def pp_rank() -> int:
    current()
    return 0


def pp_size() -> int:
    current()
    return 1


def mp_rank() -> int:
    current()
    return 0


def mp_size() -> int:
    current()
    return 1


def ranks_of(group: CommGroup) -> list[int]:
    """The world ranks of a group that this rank is in."""
    if group.name.split("_")[0] in _ALONE:
        return [rank()]
    return list(range(size()))


def process_group_of(group: CommGroup) -> dist.ProcessGroup:
    """The torch process group."""
    if group.name.split("_")[0] in _ALONE:
        return current().group_of_one()
    world = dist.group.WORLD
    if world is None:
        raise RuntimeError("the process group was destroyed")
    return world


def world_rank(number: int, kind: RankType) -> int:
    """The world rank of a rank that is counted in one of this rank's groups."""
    group = CommGroup.WORLD if kind is RankType.WORLD_RANK else CommGroup[f"{kind.name.split('_')[0]}_GROUP"]
    ranks = ranks_of(group)
    if not 0 <= number < len(ranks):
        raise ValueError(f"{kind.name} {number} is not in a group of {len(ranks)}")
    return ranks[number]


def get_world_process_group() -> dist.ProcessGroup:
    return process_group_of(WORLD)


def get_tp_process_group() -> dist.ProcessGroup:
    return process_group_of(TP_GROUP)


def get_pp_process_group() -> dist.ProcessGroup:
    return process_group_of(PP_GROUP)


def get_mp_process_group() -> dist.ProcessGroup:
    return process_group_of(MP_GROUP)


def get_dp_process_group() -> dist.ProcessGroup:
    return process_group_of(DP_GROUP)


def get_rdp_process_group() -> dist.ProcessGroup:
    return process_group_of(RDP_GROUP)


def get_tp_group() -> list[int]:
    return ranks_of(TP_GROUP)


def get_pp_group() -> list[int]:
    return ranks_of(PP_GROUP)


def get_mp_group() -> list[int]:
    return ranks_of(MP_GROUP)


def get_dp_group() -> list[int]:
    return ranks_of(DP_GROUP)


def get_rdp_group() -> list[int]:
    return ranks_of(RDP_GROUP)
