"""Which nodes can be which members of a gang: a bipartite matching, so that a gang of several types is placed whenever
any assignment of nodes to members exists.

A node with no named types becomes any *known* type; a node that names types may also name ones that are not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainshed_service.jobs.spec import Member
from trainshed_service.providers import known_type


def accepts(instance_types: frozenset[str], wanted: str) -> bool:
    return wanted in instance_types if instance_types else known_type(wanted) is not None


def match(
    members: Sequence[Member], nodes: Mapping[str, frozenset[str]], avoid: frozenset[str]
) -> tuple[str, ...] | None:
    """A node for every member, in rank order, or None. Nodes that name the type come first, those to avoid last."""
    if len(nodes) < len(members):
        return None
    found = _matching(members, nodes, avoid)
    if len(found) < len(members):
        return None
    return tuple(found[rank] for rank in range(len(members)))


def shortfall(members: Sequence[Member], nodes: Mapping[str, frozenset[str]]) -> str:
    """The members that no node could hold, in words: '2 more nodes for ml.c5.xlarge'."""
    found = _matching(members, nodes, frozenset())
    missing: dict[str, int] = {}
    for rank, member in enumerate(members):
        if rank not in found:
            missing[member.instance_type] = missing.get(member.instance_type, 0) + 1
    return " and ".join(
        f"{count} more node{'s' if count > 1 else ''} for {name}"
        + ("" if known_type(name) else " (not a known instance type: only a node that names it can be it)")
        for name, count in missing.items()
    )


def _matching(members: Sequence[Member], nodes: Mapping[str, frozenset[str]], avoid: frozenset[str]) -> dict[int, str]:
    """Largest matching rank → node (Kuhn's augmenting paths, without recursion over equal members)."""
    ordered = sorted(nodes, key=lambda node: (node in avoid, not nodes[node], node))
    candidates = {
        member.instance_type: [node for node in ordered if accepts(nodes[node], member.instance_type)]
        for member in members
    }
    holder: dict[str, int] = {}

    def augment(rank: int, seen: set[str]) -> bool:
        choices = candidates[members[rank].instance_type]
        for node in choices:
            if node not in holder and node not in seen:
                holder[node] = rank
                return True
        for node in choices:
            if node in seen:
                continue
            seen.add(node)
            if members[holder[node]].instance_type == members[rank].instance_type:
                continue
            if augment(holder[node], seen):
                holder[node] = rank
                return True
        return False

    for rank in range(len(members)):
        augment(rank, set())
    return {rank: node for node, rank in holder.items()}
