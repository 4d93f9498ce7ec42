"""Which nodes can be which members of a gang, by the numbers of nodes that are alike.

A node with no named types becomes any *known* type; a node that names types may also name ones that are not known.
Invariant: a gang of several types gets an allocation whenever any assignment of nodes to members exists (a maximum flow
from types to classes of nodes).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trainshed_service.providers import known_type
from trainshed_service.scheduling.events import Needs

Allocation = tuple[tuple[str, int, int], ...]
"""(instance type, class of nodes, how many), each at least one."""
Accepting = Callable[[str], tuple[int, ...]]
"""The classes whose nodes can be of a type, those to be taken first at the front."""


def accepts(instance_types: frozenset[str], wanted: str) -> bool:
    return wanted in instance_types if instance_types else known_type(wanted) is not None


def fit(needs: Needs, counts: Sequence[int], accepting: Accepting) -> Allocation | None:
    """How `counts[class]` nodes hold the needs, or None."""
    if len(needs) == 1:
        name, missing = needs[0]
        taken: list[tuple[str, int, int]] = []
        for cls in accepting(name):
            there = counts[cls]
            if there > 0:
                if there >= missing:
                    taken.append((name, cls, missing))
                    return tuple(taken)
                taken.append((name, cls, there))
                missing -= there
        return None
    alone: list[tuple[str, int, int]] = []
    for name, count in needs:
        classes = accepting(name)
        if len(classes) != 1 or any([part[1] == classes[0] for part in alone]):
            break
        if counts[classes[0]] < count:
            return None
        alone.append((name, classes[0], count))
    else:
        return tuple(alone)  # no two types share a class
    flow, missing_types = _flow(needs, counts, accepting)
    if missing_types:
        return None
    return tuple((name, cls, count) for name, _ in needs for cls, count in flow[name].items() if count)


def shortfall(needs: Needs, counts: Sequence[int], accepting: Accepting) -> str:
    """The members that no node could hold, in words: '2 more nodes for ml.c5.xlarge'."""
    _, missing = _flow(needs, counts, accepting)
    return " and ".join(
        f"{count} more node{'s' if count > 1 else ''} for {name}"
        + ("" if known_type(name) else " (not a known instance type: only a node that names it can be it)")
        for name, count in missing.items()
    )


def _flow(
    needs: Needs, counts: Sequence[int], accepting: Accepting
) -> tuple[dict[str, dict[int, int]], dict[str, int]]:
    """The largest flow, as type → class → number, and what is missing of each type."""
    left = {cls: max(0, counts[cls]) for name, _ in needs for cls in accepting(name)}
    flow: dict[str, dict[int, int]] = {name: {} for name, _ in needs}
    missing: dict[str, int] = {}
    for name, count in needs:
        while count:
            path = _path(name, flow, left, accepting)
            if path is None:
                missing[name] = count
                break
            amount = min([count, left[path[-1][1]], *(flow[taker][cls] for taker, cls in _given_up(path))])
            left[path[-1][1]] -= amount
            for taker, cls in path:
                flow[taker][cls] = flow[taker].get(cls, 0) + amount
            for taker, cls in _given_up(path):
                flow[taker][cls] -= amount
            count -= amount
    return flow, missing


def _given_up(path: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """What the takers behind the first one of the path give up: the class that the one before them takes."""
    return [(taker, path[step][1]) for step, (taker, _) in enumerate(path[1:])]


def _path(
    start: str, flow: dict[str, dict[int, int]], left: dict[int, int], accepting: Accepting
) -> list[tuple[str, int]] | None:
    """A shortest augmenting path: `start` takes a class, whose taker takes another … until one with free nodes."""
    seen = {start}
    frontier: list[tuple[str, list[tuple[str, int]]]] = [(start, [])]
    for taker, path in frontier:
        for cls in accepting(taker):
            if left[cls]:
                return [*path, (taker, cls)]
        for cls in accepting(taker):
            for other in flow:
                if other not in seen and flow[other].get(cls):
                    seen.add(other)
                    frontier.append((other, [*path, (taker, cls)]))
    return None
