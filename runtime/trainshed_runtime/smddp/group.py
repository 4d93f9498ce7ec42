"""The process group of the backend `smddp`: torch's own, with collectives of ours where these do better.

Invariants: for CPU tensors all_reduce, broadcast, all_gather and reduce_scatter in all their forms go over the nodes of
the group (`Communicator`), by the connections of its gloo backend; for CUDA tensors gathers, scatters and all-reduces
of a group with several nodes go over NCCL in hops (`DeviceHops`). Everything else (other collectives, sparse tensors,
other reductions) is torch's dispatch to gloo or NCCL, so no call gives another result than theirs. So are sub-groups.
"""

import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroupGloo, _create_work_from_future
from torch.distributed import PrefixStore, ProcessGroup, ReduceOp, Store, Work
from torch.futures import Future

from trainshed_runtime.collectives.communicator import Communicator
from trainshed_runtime.collectives.device import DeviceHops
from trainshed_runtime.collectives.links import Links
from trainshed_runtime.collectives.runner import Started
from trainshed_runtime.topology import Topology

_CPU, _CUDA = torch.device("cpu"), torch.device("cuda")
_FIRST_LANE = 0x54530000  # tags of our messages on gloo's connections; a script's own send and recv count from 0


def create(options: Any, backend_options: Any) -> "SmddpGroup":
    """What torch calls for init_process_group("smddp") and for each new_group of that backend."""
    ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
    return SmddpGroup(options.store, options.group_rank, ranks, options.timeout, str(options.group_id))


class SmddpGroup(ProcessGroup):
    """See the module's docstring. `ranks` are the group's ranks in the world, `rank` this one's place among them."""

    def __init__(self, store: Store, rank: int, ranks: Sequence[int], timeout: timedelta, name: str) -> None:
        super().__init__(rank, len(ranks))
        self._store = store
        self._ranks = list(ranks)
        self._timeout = timeout
        gloo = ProcessGroupGloo(PrefixStore("gloo/", store), rank, len(ranks), timeout)
        gloo.options.global_ranks_in_group = self._ranks
        gloo.options.group_name = name
        gloo._set_sequence_number_for_group()
        self._set_default_backend(ProcessGroup.BackendType.GLOO)
        self._register_backend(_CPU, ProcessGroup.BackendType.GLOO, gloo)
        topology = world_topology(self._ranks)
        links = Links(gloo if len(ranks) > 1 else None, self._ranks, rank, topology, timeout, _FIRST_LANE)
        self._communicator = Communicator(links)
        self._hops: DeviceHops | None = None
        if torch.cuda.is_available() and dist.is_nccl_available():
            nccl = nccl_backend(PrefixStore("nccl/", store), rank, self._ranks, timeout, name)
            self._register_backend(_CUDA, ProcessGroup.BackendType.NCCL, nccl)
            if self._communicator.hierarchical:
                self._hops = DeviceHops.over_nccl(
                    store, self._ranks, links.grid, timeout, name, nccl_backend, scratch_limits()
                )

    def get_group_store(self) -> Store:
        """The store that the group was made with."""
        return self._store

    def getBackendName(self) -> str:
        """As torch names it in messages."""
        return "smddp"

    def shutdown(self) -> None:
        """Ends the thread and the connections."""
        self._communicator.close()
        super().shutdown()

    def abort(self) -> None:
        """As `shutdown`, without waiting."""
        self._communicator.close()
        super().abort()

    def allreduce(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None, **more: Any) -> Work:
        """all_reduce of one tensor; torch's two forms, by options or by operation."""
        given, op, wait = _list(tensors), _operation(opts, more), _waits(opts)
        if len(given) == 1 and getattr(opts, "sparseIndices", None) is None:
            tensor = given[0]
            if self._is_ours(tensor):
                return self._go(
                    wait,
                    given,
                    lambda: self._communicator.all_reduce(tensor, op),
                    self._communicator.all_reduce_async,
                    op,
                )
            if self._hops is not None and self._hops.takes(tensor, op):
                return self._hops.all_reduce(tensor, op)
        return _native(super().allreduce, given, opts, timeout, more)

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any = None) -> Work:
        """all_reduce of several tensors of one type, as one."""
        op, wait = _operation(opts, {}), _waits(opts)
        if tensors and all(self._is_ours(tensor) for tensor in tensors) and len({t.dtype for t in tensors}) == 1:
            whole = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
            work = self._communicator.all_reduce_async(whole, op)

            def back(_: Any) -> list[torch.Tensor]:
                for tensor, part in zip(tensors, whole.split([t.numel() for t in tensors]), strict=True):
                    tensor.detach().copy_(part.view(tensor.shape))
                return tensors

            future = work.get_future().then(lambda done: back(done.value()))
            if wait:
                future.wait()
            return Started(future)
        return super().allreduce_coalesced(tensors, opts) if opts is not None else super().allreduce_coalesced(tensors)

    def broadcast(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None, **more: Any) -> Work:
        """broadcast of one tensor from the group's rank `opts.rootRank`."""
        given = _list(tensors)
        root = more.get("root", opts if isinstance(opts, int) else getattr(opts, "rootRank", 0))
        if len(given) == 1 and self._is_ours(given[0]):
            tensor = given[0]
            return self._go(
                _waits(opts),
                given,
                lambda: self._communicator.broadcast(tensor, root),
                self._communicator.broadcast_async,
                root,
            )
        return _native(super().broadcast, given, opts, timeout, more)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None, **more: Any) -> Work:
        """all_gather into one tensor for each rank."""
        lists, sources = (outputs if outputs and isinstance(outputs[0], list) else [outputs]), _list(inputs)
        if len(lists) == 1 and len(sources) == 1 and all(self._is_ours(tensor) for tensor in (*lists[0], *sources)):
            return self._go(
                _waits(opts),
                lists[0],
                lambda: self._communicator.all_gather(lists[0], sources[0]),
                self._communicator.all_gather_async,
                sources[0],
            )
        return _native(super().allgather, lists, sources, opts, more)

    def all_gather_single(self, output: torch.Tensor, source: torch.Tensor, opts: Any = None) -> Work:
        """all_gather into one tensor."""
        if self._is_ours(output) and self._is_ours(source) and output.is_contiguous():
            return self._go(
                _waits(opts),
                [output],
                lambda: self._communicator.all_gather(output, source),
                self._communicator.all_gather_async,
                source,
            )
        if self._hops is not None and self._hops.takes_gather(output, source):
            return self._hops.all_gather(output, source)
        return _native(super().all_gather_single, output, source, opts)

    def all_gather_single_coalesced(
        self, outputs: list[torch.Tensor], sources: list[torch.Tensor], opts: Any = None
    ) -> Work:
        """As `all_gather_single`, for several tensors: what torch's functional collectives call."""
        return self._several(
            [self.all_gather_single(output, source) for output, source in zip(outputs, sources, strict=True)], outputs
        )

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None, **more: Any) -> Work:
        """reduce_scatter from one tensor for each rank."""
        targets, lists = _list(outputs), (inputs if inputs and isinstance(inputs[0], list) else [inputs])
        if len(lists) == 1 and len(targets) == 1 and all(self._is_ours(tensor) for tensor in (*lists[0], *targets)):
            op = _operation(opts, more)
            return self._go(
                _waits(opts),
                targets,
                lambda: self._communicator.reduce_scatter(targets[0], lists[0], op),
                self._communicator.reduce_scatter_async,
                lists[0],
                op,
            )
        return _native(super().reduce_scatter, targets, lists, opts, more)

    def reduce_scatter_single(self, output: torch.Tensor, source: torch.Tensor, opts: Any = None) -> Work:
        """reduce_scatter from one tensor."""
        op = _operation(opts, {})
        if self._is_ours(output) and self._is_ours(source) and source.is_contiguous():
            return self._go(
                _waits(opts),
                [output],
                lambda: self._communicator.reduce_scatter(output, source, op),
                self._communicator.reduce_scatter_async,
                source,
                op,
            )
        if self._hops is not None and self._hops.takes(source, op):
            return self._hops.reduce_scatter(output, source, op)
        return _native(super().reduce_scatter_single, output, source, opts)

    def reduce_scatter_single_coalesced(
        self, outputs: list[torch.Tensor], sources: list[torch.Tensor], opts: Any = None
    ) -> Work:
        """As `reduce_scatter_single`, for several tensors."""
        return self._several(
            [self.reduce_scatter_single(output, source, opts) for output, source in zip(outputs, sources, strict=True)],
            outputs,
        )

    # The names of torch before 2.13.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _is_ours(self, tensor: torch.Tensor) -> bool:
        return tensor.device.type == "cpu" and tensor.layout is torch.strided and not tensor.is_quantized

    def _go(
        self, wait: bool, result: list[torch.Tensor], now: Callable[[], None], later: Callable[..., Work], *args: Any
    ) -> Work:
        """Now, where torch is going to wait anyway; else on the communicator's thread."""
        if not wait:
            return later(result[0] if len(result) == 1 else result, *args)
        now()
        done: Future[list[torch.Tensor]] = Future()
        done.set_result(result)
        return _create_work_from_future(done)

    def _several(self, works: list[Work], outputs: list[torch.Tensor]) -> Work:
        if len(works) == 1:
            return works[0]
        if all(output.device.type == "cpu" for output in outputs):

            def all_done(done: Any) -> list[torch.Tensor]:
                for each in done.value():
                    each.value()  # raises what it failed with
                return outputs

            return Started(torch.futures.collect_all([work.get_future() for work in works]).then(all_done))
        for work in works[:-1]:  # CUDA: the current stream waits, and so does whoever waits for the last one
            work.wait()
        return works[-1]


def world_topology(ranks: Sequence[int]) -> Topology | None:
    """The world's nodes as the launcher tells them; None where that cannot be the world that these ranks are of."""
    size = dist.get_world_size() if dist.is_initialized() else len(ranks)
    topology = Topology.from_environment(size)
    return topology if all(rank < topology.world_size for rank in ranks) else None


def nccl_backend(store: Store, rank: int, ranks: Sequence[int], timeout: timedelta, name: str) -> Any:
    """NCCL's backend as init_process_group("nccl") would make it."""
    from torch.distributed import ProcessGroupNCCL

    options = ProcessGroupNCCL.Options()
    options.is_high_priority_stream = False
    options._timeout = timeout
    options.global_ranks_in_group = list(ranks)
    options.group_name = name
    backend = ProcessGroupNCCL(store, rank, len(ranks), options)
    backend._set_sequence_number_for_group()
    return backend


def _list(tensors: Any) -> list[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _waits(opts: Any) -> bool:
    """Whether torch waits at once for the handle that it gets."""
    return getattr(opts, "asyncOp", True) is False


def _operation(opts: Any, more: dict[str, Any]) -> Any:
    if "op" in more:
        return more["op"]
    if opts is None:
        return ReduceOp.SUM
    return getattr(opts, "reduceOp", opts)


def _native(call: Callable[..., Work], *args: Any) -> Work:
    """torch's dispatch, called with what was given."""
    positional = [arg for arg in args if arg is not None and not isinstance(arg, dict)]
    named = {name: value for arg in args if isinstance(arg, dict) for name, value in arg.items()}
    return call(*positional, **named)


def scratch_limits() -> tuple[int, int]:
    """Bytes that a gather in hops on CUDA may use beside its tensors, by smddp's own two variables.

    SMDDP_AG_SCRATCH_BUFFER_SIZE_BYTES bounds a rank's input, SMDDP_AG_SORT_BUFFER_SIZE_BYTES an eighth of the whole.
    """
    names = {"SMDDP_AG_SCRATCH_BUFFER_SIZE_BYTES": 16 << 20, "SMDDP_AG_SORT_BUFFER_SIZE_BYTES": 128 << 20}
    values = []
    for name, usual in names.items():
        text = os.environ.get(name, "").strip()
        if text and (not text.isdecimal() or int(text) % 8192 or not int(text)):
            raise ValueError(f"{name}={text}: a multiple of 8192 is needed")
        values.append(int(text) if text else usual)
    return values[0], values[1]
