"""Collectives for one group of ranks, each by the way that fits the group: hierarchical over nodes, or in a ring.

Invariants: every rank of the group calls the same collectives in the same order, as torch demands it; each is exact for
what torch's collective of that name promises, for tensors of any size and layout; what is not ours to do (reductions
such as BAND, types such as bool) is done by gloo over the same connections. CPU tensors only.
"""

import atexit
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllreduceOptions
from torch.distributed import ProcessGroup, ReduceOp, Work

from trainshed_runtime.collectives import hierarchy, ring
from trainshed_runtime.collectives.links import Links
from trainshed_runtime.collectives.reduction import Reduction, reduce_into, reduction_for
from trainshed_runtime.collectives.runner import Runner
from trainshed_runtime.topology import Topology

_TINY_BYTES = 4096  # up to here a message to everybody is quicker than hops
_TINY_RANKS = 16
_DEFAULT_TIMEOUT = timedelta(minutes=30)
_made: Counter[str] = Counter()
_open: "weakref.WeakSet[Communicator]" = weakref.WeakSet()


class Communicator:
    """See the module's docstring. Making one is a collective call of the group."""

    def __init__(self, links: Links, flat: bool = False) -> None:
        """`flat`: rings, whatever the nodes."""
        self.links = links
        self._grid = None if flat else links.grid
        self._runner = Runner(f"collectives of ranks {list(links.ranks)}")
        _open.add(self)

    @classmethod
    def of_group(
        cls,
        group: ProcessGroup | None = None,
        topology: Topology | None = None,
        flat: bool = False,
        timeout: timedelta | None = None,
    ) -> "Communicator":
        """New connections among a group's ranks, beside the group's own. All its ranks call this in the same order.

        `topology` is the world's; without it the launcher's variables tell (`Topology.from_environment`).
        """
        group = group if group is not None else dist.group.WORLD
        if group is None:
            raise ValueError("there is no process group: call torch.distributed.init_process_group first")
        topology = topology or Topology.from_environment(dist.get_world_size())
        name = group.group_name
        _made[name] += 1
        prefix = f"trainshed/collectives/{name}/{_made[name]}"
        ranks = dist.get_process_group_ranks(group)
        limit = timeout or _DEFAULT_TIMEOUT
        return cls(Links.connect(group.get_group_store(), prefix, ranks, group.rank(), topology, limit), flat)

    @property
    def hierarchical(self) -> bool:
        """Whether the group has more than one node and more than one rank on each, and is not flat by choice."""
        return self._grid is not None and self._grid.nodes > 1 and self._grid.local > 1

    def all_gather(self, outputs: torch.Tensor | Sequence[torch.Tensor], source: torch.Tensor) -> None:
        """outputs = all ranks' sources, in the order of ranks: one tensor, or one for each rank (sizes may differ)."""
        self._runner.run(lambda: self._all_gather(outputs, source))

    def reduce_scatter(
        self, output: torch.Tensor, inputs: torch.Tensor | Sequence[torch.Tensor], op: Any = ReduceOp.SUM
    ) -> None:
        """output = the reduction of all ranks' inputs of this rank: one tensor in equal parts, or one for each rank."""
        self._runner.run(lambda: self._reduce_scatter(output, inputs, op))

    def all_reduce(self, tensor: torch.Tensor, op: Any = ReduceOp.SUM) -> None:
        """tensor = the reduction of all ranks' tensors; the same bits on all of them."""
        self._runner.run(lambda: self._all_reduce(tensor, op))

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        """tensor = that of the group's rank `root`."""
        self._runner.run(lambda: self._broadcast(tensor, root))

    def all_gather_async(self, outputs: torch.Tensor | Sequence[torch.Tensor], source: torch.Tensor) -> Work:
        """`all_gather` that returns at once."""
        return self._start(lambda: self._all_gather(outputs, source), outputs)

    def reduce_scatter_async(
        self, output: torch.Tensor, inputs: torch.Tensor | Sequence[torch.Tensor], op: Any = ReduceOp.SUM
    ) -> Work:
        """`reduce_scatter` that returns at once."""
        return self._start(lambda: self._reduce_scatter(output, inputs, op), output)

    def all_reduce_async(self, tensor: torch.Tensor, op: Any = ReduceOp.SUM) -> Work:
        """`all_reduce` that returns at once."""
        return self._start(lambda: self._all_reduce(tensor, op), tensor)

    def broadcast_async(self, tensor: torch.Tensor, root: int) -> Work:
        """`broadcast` that returns at once."""
        return self._start(lambda: self._broadcast(tensor, root), tensor)

    def close(self) -> None:
        """Ends the connections and the thread. Collectives under way fail."""
        _open.discard(self)
        if self._runner.idle:
            self._runner.close()
            self.links.close()
        else:
            self.links.close()
            self._runner.close()

    def _start(self, call: Callable[[], None], tensors: torch.Tensor | Sequence[torch.Tensor]) -> Work:
        """The handle's future has a list of tensors, as that of torch's own backends."""
        result = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        return self._runner.submit(call, lambda _: result)[0]

    def _all_gather(self, outputs: torch.Tensor | Sequence[torch.Tensor], source: torch.Tensor) -> None:
        links = self._begin()
        whole = _parts(outputs, links.size, "all_gather")
        flat = [_flat(part) for part in whole]
        own = flat[links.rank]
        if own.numel() != source.numel() or own.dtype != source.dtype:
            raise ValueError(
                f"all_gather: rank {links.rank} gives {source.numel()} × {source.dtype}, and expects of itself "
                f"{own.numel()} × {own.dtype}"
            )
        if own.data_ptr() != source.data_ptr() or not source.is_contiguous():
            own.copy_(source.detach().reshape(-1))
        if self._grid is None:
            ring.all_gather(links, flat)
        else:
            links.meet()
            hierarchy.all_gather(links, self._grid, flat)
        for part, values in zip(whole, flat, strict=True):
            _give_back(part, values)

    def _reduce_scatter(self, output: torch.Tensor, inputs: torch.Tensor | Sequence[torch.Tensor], op: Any) -> None:
        links = self._begin()
        parts = [_flat(part) for part in _parts(inputs, links.size, "reduce_scatter")]
        if parts[links.rank].numel() != output.numel() or any(part.dtype != output.dtype for part in parts):
            raise ValueError(
                f"reduce_scatter: rank {links.rank} gives {parts[links.rank].numel()} × {parts[links.rank].dtype} for "
                f"itself, and expects {output.numel()} × {output.dtype}"
            )
        reduction = reduction_for(op, output.dtype)
        flat = _flat(output)
        if reduction is None:
            everything = torch.cat(parts)
            self._native_all_reduce(everything, op)
            begin = sum(part.numel() for part in parts[: links.rank])
            flat.copy_(everything[begin : begin + flat.numel()])
        elif self._grid is None:
            ring.reduce_scatter(links, flat, parts, reduction, self._divisor(reduction))
        else:
            links.meet()
            hierarchy.reduce_scatter(links, self._grid, flat, parts, reduction, self._divisor(reduction))
        _give_back(output, flat)

    def _all_reduce(self, tensor: torch.Tensor, op: Any) -> None:
        links = self._begin()
        if links.size == 1:
            return
        flat = _flat(tensor)
        reduction = reduction_for(op, tensor.dtype)
        if reduction is None:
            self._native_all_reduce(flat, op)
        elif flat.numel() * flat.element_size() <= _TINY_BYTES and links.size <= _TINY_RANKS:
            self._tiny_all_reduce(flat, reduction)
        elif self._grid is None:
            ring.all_reduce(links, flat, reduction, self._divisor(reduction))
        else:
            links.meet()
            hierarchy.all_reduce(links, self._grid, flat, reduction, self._divisor(reduction))
        _give_back(tensor, flat)

    def _broadcast(self, tensor: torch.Tensor, root: int) -> None:
        links = self._begin()
        if not 0 <= root < links.size:
            raise ValueError(f"broadcast: the group of {links.size} ranks has no rank {root}")
        if links.size == 1:
            return
        flat = _flat(tensor)
        if self._grid is None:
            ring.broadcast(links, flat, root)
        else:
            links.meet()
            hierarchy.broadcast(links, self._grid, flat, root)
        if root != links.rank:
            _give_back(tensor, flat)

    def _tiny_all_reduce(self, flat: torch.Tensor, reduction: Reduction) -> None:
        """Everybody sends all to everybody and adds up in the order of ranks."""
        links = self.links
        if not flat.numel():
            return
        others = [(links.rank + step) % links.size for step in range(1, links.size)]
        arriving = {peer: links.receive(links.take(flat), peer, 0) for peer in others}
        mine = links.take(flat)
        mine.copy_(flat)
        sent = [links.send(mine, peer, 0) for peer in others]
        parts = {peer: transfer.wait() for peer, transfer in arriving.items()}
        parts[links.rank] = mine
        reduce_into(flat, [parts[rank] for rank in range(links.size)], reduction, self._divisor(reduction))
        for transfer in sent:
            transfer.wait()
        for part in parts.values():
            links.give(part)

    def _native_all_reduce(self, flat: torch.Tensor, op: Any) -> None:
        if self.links.backend is None:
            return
        options = AllreduceOptions()
        options.reduceOp = op
        self.links.backend.allreduce([flat], options).wait()

    def _divisor(self, reduction: Reduction) -> int:
        return self.links.size if reduction is Reduction.AVG else 1

    def _begin(self) -> Links:
        self.links.calls += 1
        return self.links


def _parts(tensors: torch.Tensor | Sequence[torch.Tensor], size: int, what: str) -> list[torch.Tensor]:
    """One tensor for each rank."""
    if not isinstance(tensors, torch.Tensor):
        if len(tensors) != size:
            raise ValueError(f"{what}: {len(tensors)} tensors for {size} ranks")
        return list(tensors)
    if tensors.numel() % size:
        raise ValueError(f"{what}: {tensors.numel()} elements are no equal parts for {size} ranks")
    if not tensors.is_contiguous():
        raise ValueError(f"{what}: the tensor of all ranks' parts must be contiguous")
    return list(tensors.detach().view(-1).split(tensors.numel() // size)) if tensors.numel() else [tensors] * size


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous flat view, or a copy where there is none; conjugate and negative views are resolved."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    return plain.contiguous().view(-1)


def _give_back(tensor: torch.Tensor, flat: torch.Tensor) -> None:
    """What was received into a copy goes to where it belongs."""
    if tensor.numel() and tensor.data_ptr() != flat.data_ptr():
        tensor.detach().copy_(flat.view(tensor.shape))


@atexit.register
def _close_all() -> None:
    """A thread that waits for a peer for ever would be ended in the middle of torch's own code."""
    for communicator in list(_open):
        communicator.close()
