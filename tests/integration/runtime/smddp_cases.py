"""What the ranks of test_smddp.py run; each starts the process group itself."""

from __future__ import annotations

import os
import signal
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel


def start() -> tuple[int, int]:
    import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401

    dist.init_process_group("smddp")
    assert dist.get_backend() == "smddp"
    return dist.get_rank(), dist.get_world_size()


def api() -> None:
    """Each function of torch.distributed, in the world and in a sub-group, waited for and not."""
    rank, world = start()
    subset = [0, world - 1]
    group = dist.new_group(subset)
    assert dist.get_backend(group if rank in subset else None) == "smddp"
    _collectives(rank, list(range(world)), None)
    if rank in subset:
        _collectives(rank, subset, group)
    dist.barrier()
    objects: list[Any] = [None] * world
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": other} for other in range(world)]
    box = ["of 1" if rank == 1 else None]
    dist.broadcast_object_list(box, src=1)
    assert box == ["of 1"]
    if rank < 2:
        message = torch.full((3,), float(rank))
        dist.send(message, 1) if rank == 0 else dist.recv(message, 0)
        assert message.tolist() == [0.0] * 3
    dist.destroy_process_group()
    os.environ["MASTER_PORT"] = os.environ["SECOND_PORT"]
    dist.init_process_group("smddp")
    again = torch.ones(100_000)
    dist.all_reduce(again)
    assert bool((again == world).all()), "after a second start"


def _collectives(rank: int, ranks: list[int], group: dist.ProcessGroup | None) -> None:
    world, total = len(ranks), float(sum(ranks))
    for elements in (3, 40_000):
        mine = torch.full((elements,), float(rank))
        for wait in (True, False):
            reduced = mine.clone()
            work = dist.all_reduce(reduced, group=group, async_op=not wait)
            if work is not None:
                work.wait()
            assert bool((reduced == total).all())
        largest = mine.clone()
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=group)
        assert bool((largest == max(ranks)).all())
        bits = torch.full((elements,), 1 << rank)
        dist.all_reduce(bits, dist.ReduceOp.BOR, group=group)  # gloo's own
        assert bool((bits == sum(1 << other for other in ranks)).all())
        sent = mine.clone()
        dist.broadcast(sent, ranks[-1], group=group)
        assert bool((sent == ranks[-1]).all())
        each = [torch.empty(elements) for _ in ranks]
        dist.all_gather(each, mine, group=group)
        assert [part[-1].item() for part in each] == ranks
        whole = torch.empty(world * elements)
        dist.all_gather_single(whole, mine, group=group)
        assert torch.equal(whole, torch.cat(each))
        scattered = torch.empty(elements)
        dist.reduce_scatter(scattered, [part + rank for part in each], group=group)
        assert bool((scattered == rank * world + total).all())
        dist.reduce_scatter_single(scattered, whole, dist.ReduceOp.AVG, group=group)
        assert bool((scattered == rank).all())
        dist.reduce(sent, ranks[0], group=group)  # gloo's own, as all that follows
        exchanged = torch.empty(world, 2)
        dist.all_to_all_single(exchanged, torch.full((world, 2), float(rank)), group=group)
        assert exchanged[:, 0].tolist() == ranks
    several = [torch.full((n,), float(rank)) for n in (2, 5)]
    dist.all_reduce_coalesced(several, group=group)
    assert [tensor.sum().item() for tensor in several] == [2 * total, 5 * total]
    name = group if group is not None else dist.group.WORLD
    assert bool((functional.all_reduce(torch.ones(4), "sum", name) == world).all())
    gathered = functional.all_gather_tensor(torch.full((2,), float(rank)), 0, name)
    assert gathered.tolist() == [float(other) for other in ranks for _ in range(2)]
    dist.barrier(group)


def model() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)).double()


def batches(world: int) -> torch.Tensor:
    return torch.randn(3, world, 4, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def reference(world: int) -> list[torch.Tensor]:
    """Three steps in one process over all ranks' samples."""
    alone = model()
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    for batch in batches(world):
        alone(batch.reshape(-1, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [parameter.detach() for parameter in alone.parameters()]


def training(kind: str) -> None:
    """Three steps of DDP or FSDP2 over smddp equal one process's."""
    rank, world = start()
    trained = model()
    if kind == "ddp":
        used: nn.Module = DistributedDataParallel(trained, bucket_cap_mb=1)
    else:
        shape, names = ((world,), ("shard",)) if kind == "fsdp" else ((world // 2, 2), ("replicate", "shard"))
        mesh = dist.init_device_mesh("cpu", shape, mesh_dim_names=names)
        used = fully_shard(trained, mesh=mesh, mp_policy=MixedPrecisionPolicy())
    optimizer = torch.optim.SGD(used.parameters(), lr=0.1)
    for batch in batches(world):
        used(batch[rank]).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    for found, expected in zip(trained.parameters(), reference(world), strict=True):
        full = found.full_tensor() if isinstance(found, DTensor) else found
        torch.testing.assert_close(full.detach(), expected, rtol=1e-10, atol=1e-12)
    dist.destroy_process_group()


def custom_for_fsdp() -> None:
    """FSDP2 over plain gloo with our gather, asynchronous and prefetched, and our reduce-scatter."""
    from torch.distributed.fsdp import FSDPModule

    from trainshed_runtime.collectives import Communicator, CustomAllGather, CustomReduceScatter

    rank, world = dist.get_rank(), dist.get_world_size()
    trained = model()
    for layer in trained:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, reshard_after_forward=True)
    fully_shard(trained)
    gather, scatter = Communicator.of_group(), Communicator.of_group()
    modules = [module for module in trained.modules() if isinstance(module, FSDPModule)]
    for module in modules:
        module.set_custom_all_gather(CustomAllGather(gather))
        module.set_custom_reduce_scatter(CustomReduceScatter(scatter))
        module._set_unshard_async_op(True)
    modules[0].set_modules_to_forward_prefetch(modules[1:])
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    for batch in batches(world):
        trained(batch[rank]).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert gather.links.calls > 6, "FSDP2 did not use the gather"
    assert scatter.links.calls >= 6, "FSDP2 did not use the reduce-scatter"
    for found, expected in zip(trained.parameters(), reference(world), strict=True):
        torch.testing.assert_close(found.full_tensor().detach(), expected, rtol=1e-10, atol=1e-12)


def legacy() -> None:
    """The names of the library's first version."""
    import smdistributed.dataparallel.torch.distributed as old
    from smdistributed.dataparallel.torch.parallel import DistributedDataParallel as Old

    assert old.is_available() and not old.is_initialized()
    trained = Old(model(), broadcast_buffers=False, bucket_cap_mb=1)  # starts the group
    assert old.is_initialized() and dist.get_backend() == "smddp"
    rank, world = old.get_rank(), old.get_world_size()
    assert old.get_local_rank() == rank % 2
    for batch in batches(world):
        trained(batch[rank]).square().mean().backward()
        with torch.no_grad():
            for parameter in trained.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
    for found, expected in zip(trained.parameters(), reference(world), strict=True):
        torch.testing.assert_close(found.detach(), expected, rtol=1e-10, atol=1e-12)
    value = torch.full((4,), float(rank))
    old.all_reduce(value, old.ReduceOp.SUM, old.group.WORLD)
    assert value[0].item() == sum(range(world))
    old.broadcast(value, 0)
    old.all_gather([torch.empty(4) for _ in range(world)], value)
    old.barrier()


def hops() -> None:
    """The hops that CUDA tensors take, here over gloo: the numbers do not depend on the library underneath."""
    from datetime import timedelta

    from torch._C._distributed_c10d import ProcessGroupGloo
    from torch.distributed import ReduceOp

    from trainshed_runtime.collectives.device import DeviceHops
    from trainshed_runtime.collectives.links import grid_of
    from trainshed_runtime.topology import Topology

    rank, world = dist.get_rank(), dist.get_world_size()
    grid = grid_of(Topology(world, 2), list(range(world)), rank)
    assert grid is not None
    assert dist.group.WORLD is not None

    def gloo(store: Any, rank: int, ranks: list[int], timeout: timedelta, name: str) -> ProcessGroupGloo:
        return ProcessGroupGloo(store, rank, len(ranks), timeout)

    store = dist.group.WORLD.get_group_store()
    made = DeviceHops.over_nccl(store, list(range(world)), grid, timedelta(seconds=60), "hops", gloo)
    made._small = 0
    inputs = torch.arange(world * 6.0) * (rank + 1)
    factor = sum(range(1, world + 1))
    assert made.takes(inputs) and not made.takes(inputs[:-1])
    output = torch.empty(6)
    made.reduce_scatter(output, inputs, ReduceOp.SUM).wait()
    assert torch.equal(output, torch.arange(rank * 6.0, rank * 6.0 + 6) * factor)
    whole = torch.empty(world * 6)
    made.all_gather(whole, output).wait()
    assert torch.equal(whole, torch.arange(world * 6.0) * factor)
    made.all_reduce(inputs, ReduceOp.SUM).wait()
    assert torch.equal(inputs, whole)


def cuda() -> None:
    """CUDA tensors over NCCL: flat, and in hops where the variables tell of several nodes."""
    torch.cuda.set_device(int(os.environ["RANK"]) % torch.cuda.device_count())
    rank, world = start()
    elements = world * (1 << 18)  # above what is left to the flat collectives
    whole = torch.full((elements,), float(rank), device="cuda")
    dist.all_reduce(whole)
    assert bool((whole == sum(range(world))).all())
    own = torch.empty(elements // world, device="cuda")
    dist.reduce_scatter_single(own, whole)
    assert bool((own == world * sum(range(world))).all())
    own.fill_(rank)
    dist.all_gather_single(whole, own)
    assert whole.view(world, -1)[:, 0].tolist() == [float(other) for other in range(world)]
    trained = DistributedDataParallel(model().cuda())
    trained(batches(world)[0][rank].cuda()).square().mean().backward()
    alone = model()
    alone(batches(world)[0].reshape(-1, 8)).square().mean().backward()
    for found, expected in zip(trained.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(found.grad.cpu(), expected.grad, rtol=1e-10, atol=1e-12)
    dist.destroy_process_group()


def loses_a_rank(how: str) -> None:
    """The last rank dies; the others end by an error, whatever way they wait: none goes on with what never came."""
    rank, world = start()
    value = torch.ones(50_000)
    dist.all_reduce(value)
    if rank == world - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "ddp":
        trained = DistributedDataParallel(model())
        trained(batches(world)[0][rank]).square().mean().backward()
    elif how == "coalesced":
        dist.all_reduce_coalesced([value, value[:7].clone()], async_op=True).wait()
    else:
        work = dist.all_reduce(value, async_op=how == "later")
        if work is not None:
            work.wait()
