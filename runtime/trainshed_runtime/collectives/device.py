"""Collectives in hops for tensors on a device: each hop is one collective of the library underneath (NCCL).

Invariants: hops of one call follow each other on a stream of their own that first waits for the caller's, so the
caller's stream goes on until it waits for the handle; buffers between hops belong to that stream. What a hop cannot do
in equal parts is not taken (`takes`): the caller then uses the flat collective.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceOptions,
    ReduceScatterOptions,
    _create_work_from_future,
)
from torch.distributed import PrefixStore, ReduceOp, Store, Work
from torch.futures import Future

from trainshed_runtime.collectives.links import Grid

_HOPS = (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.MAX, ReduceOp.MIN, ReduceOp.PRODUCT)
_SMALL_BYTES = 1 << 20  # below, the flat collective's latency is less than that of three hops


class DeviceHops:
    """Hops over two backends of one device type: `inside` the node and `across` nodes among ranks of the same place."""

    def __init__(
        self, inside: Any, across: Any, grid: Grid, small: int = _SMALL_BYTES, gather: tuple[int, int] | None = None
    ) -> None:
        """`small`: bytes up to which nothing is taken; `gather`: of scratch for a rank's input and for the whole."""
        self._inside, self._across, self._grid = inside, across, grid
        self._small = small
        self._gather = gather
        self._stream: Any = None

    @classmethod
    def over_nccl(
        cls,
        store: Store,
        ranks: Sequence[int],
        grid: Grid,
        timeout: timedelta,
        name: str,
        backend: Callable[..., Any],
        gather: tuple[int, int] | None = None,
    ) -> "DeviceHops":
        """Communicators for the rows and columns of the grid. A collective call of the group."""
        row = [ranks[grid.at(grid.node, place)] for place in range(grid.local)]
        column = [ranks[grid.at(node, grid.place)] for node in range(grid.nodes)]
        inside = backend(PrefixStore(f"inside/{grid.node}/", store), grid.place, row, timeout, f"{name}:inside")
        across = backend(PrefixStore(f"across/{grid.place}/", store), grid.node, column, timeout, f"{name}:across")
        return cls(inside, across, grid, gather=gather)

    def takes(self, tensor: torch.Tensor, op: Any = ReduceOp.SUM) -> bool:
        """Whether the tensor, which is the whole, can go in hops and is large enough to gain by it."""
        whole = tensor.numel() * tensor.element_size()
        fits = tensor.is_contiguous() and tensor.numel() % self._grid.size == 0 and whole > self._small
        return fits and any(op == known for known in _HOPS)

    def takes_gather(self, output: torch.Tensor, source: torch.Tensor) -> bool:
        """As `takes`; and within the bounds on scratch."""
        if not self.takes(output) or not source.is_contiguous():
            return False
        if self._gather is None:
            return True
        size = source.numel() * source.element_size()
        return size <= self._gather[0] and self._grid.size * size // 8 <= self._gather[1]

    def all_gather(self, output: torch.Tensor, source: torch.Tensor) -> Work:
        """Across nodes, inside the node, then one copy into the order of ranks."""
        grid, size = self._grid, source.numel()

        def hops() -> None:
            column = source.new_empty(grid.nodes * size)
            self._across._allgather_base(column, source.view(-1), AllgatherOptions()).wait()
            rows = source.new_empty(grid.size * size)
            self._inside._allgather_base(rows, column, AllgatherOptions()).wait()
            output.view(grid.nodes, grid.local, size).copy_(rows.view(grid.local, grid.nodes, size).transpose(0, 1))

        return self._run(hops, output, source)

    def reduce_scatter(self, output: torch.Tensor, source: torch.Tensor, op: Any) -> Work:
        """One copy into the order of places, inside the node, then across nodes."""
        grid, size = self._grid, output.numel()
        options = ReduceScatterOptions()
        options.reduceOp = op

        def hops() -> None:
            sorted_ = source.view(grid.nodes, grid.local, size).transpose(0, 1).contiguous()
            column = source.new_empty(grid.nodes * size)
            self._inside._reduce_scatter_base(column, sorted_.view(-1), options).wait()
            self._across._reduce_scatter_base(output.view(-1), column, options).wait()

        return self._run(hops, output, source)

    def all_reduce(self, tensor: torch.Tensor, op: Any) -> Work:
        """Scatter inside the node, all-reduce across, gather inside; in place."""
        grid = self._grid
        flat = tensor.view(-1)
        scatter, reduce = ReduceScatterOptions(), AllreduceOptions()
        scatter.reduceOp = reduce.reduceOp = op

        def hops() -> None:
            own = flat.new_empty(flat.numel() // grid.local)
            self._inside._reduce_scatter_base(own, flat, scatter).wait()
            self._across.allreduce([own], reduce).wait()
            self._inside._allgather_base(flat, own, AllgatherOptions()).wait()

        return self._run(hops, tensor, tensor)

    def _run(self, hops: Callable[[], None], result: torch.Tensor, source: torch.Tensor) -> Work:
        device = result.device
        if device.type != "cuda":
            hops()
            done: Future[list[torch.Tensor]] = Future()
            done.set_result([result])
            return _create_work_from_future(done)
        if self._stream is None:
            self._stream = torch.cuda.Stream(device)
        self._stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(self._stream):
            hops()
            done = Future(devices=[device])
            done.set_result([result])  # whoever waits for it makes its own stream wait for this one
        for tensor in (result, source):
            tensor.record_stream(self._stream)
        return _create_work_from_future(done)
