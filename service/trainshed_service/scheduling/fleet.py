"""The nodes, counted: classes of nodes that are alike, what is free of each, and who holds the rest until when.

Invariants:

* A node is free or in exactly one holding (of a job, of a pool, or of one that nobody told us about).
* `free[c]`, the classes' `present` and the sorted `ends` always agree with the nodes; every change costs at most the
  logarithm of their number (plus a shift in a list).
* Of a class, the free nodes with the lowest names are taken first, so equal inputs give equal decisions.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from trainshed_service.providers import known_type
from trainshed_service.scheduling.matching import Allocation, accepts

UNKNOWN_SECONDS = 86_400.0
"""For how long a node that is held by nobody we know of counts as held."""


@dataclass(slots=True, eq=False)
class Holding:
    """Nodes that are not free. `ends_at`: by the job's limit, or when the pool expires."""

    kind: Literal["job", "pool", "ending", "unknown"]
    key: int | str
    user_id: int | None
    role_arn: str
    types: dict[str, str]
    """Node → the instance type that it is."""
    since: float
    ends_at: float
    expected_end: float | None = None
    pool_key: str = ""
    serial: int = 0
    counts: dict[int, int] = field(default_factory=dict)
    """Class → nodes."""


class NodeClass:
    __slots__ = ("component", "ends", "free_heap", "free_ids", "index", "pools", "present", "types")

    def __init__(self, index: int, types: frozenset[str]) -> None:
        self.index = index
        self.types = types
        self.present = 0
        self.component = index
        self.free_ids: set[str] = set()
        self.free_heap: list[str] = []
        self.ends: list[tuple[float, int, Holding]] = []
        self.pools: dict[int, Holding] = {}
        """Pools (also ending ones) with nodes of this class, by their serial."""


class Node:
    __slots__ = ("cls", "holding")

    def __init__(self, cls: NodeClass) -> None:
        self.cls = cls
        self.holding: Holding | None = None


class Fleet:
    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.classes: list[NodeClass] = []
        self.free: list[int] = []
        self.jobs: dict[int, Holding] = {}
        self.pools: dict[str, Holding] = {}
        """Pools that are available or ending."""
        self.version = 0
        """Grows when nodes come or go: what could ever fit may be another then."""
        self._by_types: dict[frozenset[str], NodeClass] = {}
        self._accepting: dict[str, tuple[int, ...]] = {}
        self._serial = 0

    # -- nodes -----------------------------------------------------------------------------------------------------

    def put(self, node_id: str, types: frozenset[str]) -> Node:
        """The node, made known; where it was known with others, known anew and held as before. A new one is free."""
        node = self.nodes.get(node_id)
        if node is not None and node.cls.types == types:
            return node
        if node is not None and node.holding is not None:
            return self._put_held(node_id, node, node.holding, types)
        if node is not None:
            self.remove(node_id)
        cls = self._by_types.get(types) or self._new_class(types)
        node = self.nodes[node_id] = Node(cls)
        cls.present += 1
        self.version += 1
        self.free[cls.index] += 1
        cls.free_ids.add(node_id)
        heapq.heappush(cls.free_heap, node_id)
        return node

    def _put_held(self, node_id: str, node: Node, holding: Holding, types: frozenset[str]) -> Node:
        order, name = list(holding.types), holding.types[node_id]
        self.drop(node_id, node)
        self.remove(node_id)
        known = self.put(node_id, types)
        self.extend(holding, {node_id: name})
        holding.types = {each: holding.types[each] for each in order}  # ranks stay as they were
        return known

    def remove(self, node_id: str) -> None:
        """The node is gone; it must not be in a holding any more."""
        node = self.nodes.pop(node_id)
        assert node.holding is None
        node.cls.present -= 1
        self.version += 1
        node.cls.free_ids.discard(node_id)
        self.free[node.cls.index] -= 1

    def pick(self, cls: int, count: int, avoid: frozenset[str], *, to_hold: bool) -> list[str]:
        """The first `count` free nodes of a class, those to avoid last. They stay free until they are held.

        `to_hold`: which they are, before anybody picks again.
        """
        which = self.classes[cls]
        if not avoid.isdisjoint(which.free_ids):
            return heapq.nsmallest(count, which.free_ids, key=lambda node_id: (node_id in avoid, node_id))
        chosen: list[str] = []
        while len(chosen) < count:
            node_id = heapq.heappop(which.free_heap)
            if node_id in which.free_ids and (not chosen or node_id != chosen[-1]):
                chosen.append(node_id)
        if not to_hold:
            for node_id in chosen:
                heapq.heappush(which.free_heap, node_id)
        return chosen

    def choose(self, allocation: Allocation, avoid: frozenset[str], *, to_hold: bool) -> dict[str, list[str]]:
        """Free nodes for an allocation, by the instance type that they are to be. `to_hold`: as for `pick`."""
        if len(allocation) == 1:
            ((name, cls, count),) = allocation
            return {name: self.pick(cls, count, avoid, to_hold=to_hold)}
        chosen: dict[str, list[str]] = {}
        taken: dict[int, int] = {}
        picked: dict[int, list[str]] = {}
        for _, cls, count in allocation:
            taken[cls] = taken.get(cls, 0) + count
        for cls, count in taken.items():
            picked[cls] = self.pick(cls, count, avoid, to_hold=to_hold)
        for name, cls, count in allocation:
            chosen.setdefault(name, []).extend(picked[cls][:count])
            del picked[cls][:count]
        return chosen

    # -- holdings --------------------------------------------------------------------------------------------------

    def hold(self, holding: Holding) -> None:
        """Nodes that are free or that nobody known holds get a holder."""
        self._serial += 1
        holding.serial = self._serial
        types, holding.types = holding.types, {}
        self.extend(holding, types)

    def extend(self, holding: Holding, types: dict[str, str]) -> None:
        """The holding gets these nodes too."""
        nodes, free, counts, held = self.nodes, self.free, holding.counts, holding.types
        for node_id, name in types.items():
            node = nodes[node_id]
            if node.holding is not None:
                self.drop(node_id, node)
            cls = node.cls
            index = cls.index
            node.holding = holding
            held[node_id] = name
            cls.free_ids.discard(node_id)
            free[index] -= 1
            if index not in counts:
                counts[index] = 1
                insort(cls.ends, (holding.ends_at, holding.serial, holding))
                if holding.kind in ("pool", "ending"):
                    cls.pools[holding.serial] = holding
            else:
                counts[index] += 1

    def drop(self, node_id: str, node: Node) -> None:
        """The node, which somebody holds, is free again."""
        holding, cls = node.holding, node.cls
        index = cls.index
        assert holding is not None
        del holding.types[node_id]
        node.holding = None
        left = holding.counts[index] - 1
        if left:
            holding.counts[index] = left
        else:
            self._forget_end(index, holding)
            cls.pools.pop(holding.serial, None)
            del holding.counts[index]
        self.free[index] += 1
        cls.free_ids.add(node_id)
        heapq.heappush(cls.free_heap, node_id)
        if len(cls.free_heap) > 4 * len(cls.free_ids) + 64:
            cls.free_heap = sorted(cls.free_ids)

    def pools_of(self, classes: Iterable[int]) -> list[Holding]:
        """Pools (also ending ones) with nodes of these classes, in the order in which they came to be."""
        found = {serial: pool for index in classes for serial, pool in self.classes[index].pools.items()}
        return [found[serial] for serial in sorted(found)]

    def change_end(self, holding: Holding, ends_at: float) -> None:
        if holding.ends_at == ends_at:
            return
        for index in holding.counts:
            self._forget_end(index, holding)
        holding.ends_at = ends_at
        for index in holding.counts:
            insort(self.classes[index].ends, (ends_at, holding.serial, holding))

    # -- what could run where --------------------------------------------------------------------------------------

    def accepting(self, instance_type: str) -> tuple[int, ...]:
        """The classes whose nodes can be of this type: those that name few types first, those that name none last."""
        found = self._accepting.get(instance_type)
        if found is None:
            classes = [cls for cls in self.classes if accepts(cls.types, instance_type)]
            classes.sort(key=lambda cls: (not cls.types, len(cls.types), sorted(cls.types)))
            found = self._accepting[instance_type] = tuple(cls.index for cls in classes)
        return found

    def present(self) -> list[int]:
        return [cls.present for cls in self.classes]

    def components(self, types: Iterable[str]) -> frozenset[int]:
        return frozenset(self.classes[index].component for name in types for index in self.accepting(name))

    def free_in(self, component: int) -> int:
        return sum([self.free[cls.index] for cls in self.classes if cls.component == component])

    def _new_class(self, types: frozenset[str]) -> NodeClass:
        cls = self._by_types[types] = NodeClass(len(self.classes), types)
        self.classes.append(cls)
        self.free.append(0)
        self._accepting.clear()
        self._link()
        return cls

    def _link(self) -> None:
        """Classes that may serve the same type are of one component: only there do jobs compete."""
        for cls in self.classes:
            cls.component = cls.index
        for cls in self.classes:
            for other in self.classes[: cls.index]:
                if cls.component != other.component and _share_a_type(cls.types, other.types):
                    merged, gone = sorted((cls.component, other.component))
                    for each in self.classes:
                        if each.component == gone:
                            each.component = merged

    def _forget_end(self, index: int, holding: Holding) -> None:
        ends = self.classes[index].ends
        at = bisect_left(ends, (holding.ends_at, holding.serial))
        assert ends[at][2] is holding
        del ends[at]


def _share_a_type(one: frozenset[str], other: frozenset[str]) -> bool:
    if one and other:
        return not one.isdisjoint(other)
    return any(known_type(name) is not None for name in one or other)
