"""What the ranks of test_collectives.py run. Each rank can make every rank's tensors, so it checks all by itself."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from trainshed_runtime.collectives import Communicator, pieces
from trainshed_runtime.topology import Topology

_TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 4e-2}
_OPS = {
    ReduceOp.SUM: lambda stack: stack.sum(0),
    ReduceOp.AVG: lambda stack: stack.mean(0),
    ReduceOp.MAX: lambda stack: stack.amax(0),
    ReduceOp.MIN: lambda stack: stack.amin(0),
    ReduceOp.PRODUCT: lambda stack: stack.prod(0),
}
_TYPES = (*_TOLERANCE, torch.int64, torch.int32, torch.uint8, torch.bool)


@dataclass(frozen=True)
class Case:
    seed: int
    dtype: torch.dtype
    op: ReduceOp.RedOpType
    sizes: tuple[int, ...]  # of each rank's chunk

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.dtype}, {self.op}, {self.sizes}"


def made(case: Case, rank: int, elements: int) -> torch.Tensor:
    """Rank's tensor; small whole numbers where the type has no fractions, so that no sum overflows."""
    generator = torch.Generator().manual_seed(case.seed * 1000 + rank)
    if case.dtype is torch.bool:
        return torch.randint(0, 2, (elements,), generator=generator).bool()
    if case.dtype in _TOLERANCE:
        return torch.randn(elements, generator=generator, dtype=torch.float64).to(case.dtype)
    return torch.randint(0, 4 if case.dtype is torch.uint8 else 100, (elements,), generator=generator).to(case.dtype)


def cases(world: int, seed: int, count: int) -> Iterator[Case]:
    chance = random.Random(seed)
    for number in range(count):
        dtype = _TYPES[number % len(_TYPES)]
        op = chance.choice(list(_OPS))
        if dtype not in _TOLERANCE and op == ReduceOp.AVG:
            op = ReduceOp.SUM
        if dtype is torch.bool:
            op = ReduceOp.MAX
        top = chance.choice([0, 1, 7, 100, 3_000, 3_000])
        even = chance.random() < 0.5
        sizes = (chance.randint(0, top),) * world if even else tuple(chance.randint(0, top) for _ in range(world))
        yield Case(seed * 10_000 + number, dtype, op, sizes)


def random_cases(topology: Topology, flat: bool, seed: int, count: int) -> int:
    """Every collective against its definition, twice for the bits; gives back how many were compared."""
    world, rank = dist.get_world_size(), dist.get_rank()
    pieces.PIECE_BYTES, pieces._FEWEST_BYTES = 1024, 256  # many pieces of small tensors
    communicator = Communicator.of_group(topology=topology, flat=flat)
    compared = 0
    for case in cases(world, seed, count):
        own = made(case, rank, case.sizes[rank])
        outputs = [torch.empty(size, dtype=case.dtype) for size in case.sizes]
        communicator.all_gather(outputs, own)
        for other, output in enumerate(outputs):
            assert torch.equal(output, made(case, other, case.sizes[other])), f"all_gather, {case}, of {other}"
        total, begin = sum(case.sizes), sum(case.sizes[:rank])
        for root in {case.seed % world, world - 1}:
            sent = made(case, rank, total)
            communicator.broadcast(sent, root)
            assert torch.equal(sent, made(case, root, total)), f"broadcast, {case}, from {root}"
        compared += 1
        expected = reference(case, world, total)
        if case.dtype is torch.bool:
            continue
        first = torch.empty(0)
        for attempt in range(2):
            whole = made(case, rank, total)
            parts = list(whole.split(list(case.sizes)))
            # The second time in place: the result goes to where this rank's own part was.
            scattered = parts[rank] if attempt else torch.empty(case.sizes[rank], dtype=case.dtype)
            communicator.reduce_scatter(scattered, parts, case.op)
            close(case, scattered, expected[begin : begin + case.sizes[rank]], "reduce_scatter")
            if attempt:
                assert torch.equal(scattered, first), f"reduce_scatter again, {case}"
            first = scattered.clone()
        reduced = made(case, rank, total)
        communicator.all_reduce(reduced, case.op)
        close(case, reduced, expected, "all_reduce")
        same_everywhere(communicator, reduced, f"all_reduce, {case}")
    communicator.close()
    return compared


def reference(case: Case, world: int, elements: int) -> torch.Tensor:
    stack = torch.stack([made(case, other, elements) for other in range(world)])
    wide = stack.double() if case.dtype in _TOLERANCE else stack.long()
    return _OPS[case.op](wide)


def close(case: Case, found: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    if case.dtype not in _TOLERANCE:
        assert torch.equal(found, expected.to(case.dtype)), f"{what}, {case}"
        return
    bound = _TOLERANCE[case.dtype]
    torch.testing.assert_close(
        found.double(), expected, rtol=bound, atol=bound, msg=lambda text: f"{what}, {case}: {text}"
    )


def same_everywhere(communicator: Communicator, tensor: torch.Tensor, what: str) -> None:
    bits = [torch.empty_like(tensor) for _ in range(communicator.links.size)]
    communicator.all_gather(bits, tensor)
    assert all(torch.equal(other, tensor) for other in bits), what


def layouts(topology: Topology) -> None:
    """Tensors that are not flat, not contiguous, require gradients or are empty; one tensor for all; asynchronous."""
    world, rank = dist.get_world_size(), dist.get_rank()
    communicator = Communicator.of_group(topology=topology)
    crossed = torch.full((40, 30), float(rank)).t()
    assert not crossed.is_contiguous()
    communicator.all_reduce(crossed)
    assert torch.equal(crossed, torch.full((30, 40), world * (world - 1) / 2))
    parameter = torch.nn.Parameter(torch.full((3, 5), float(rank)))
    communicator.broadcast(parameter, 1)
    assert torch.equal(parameter.detach(), torch.ones(3, 5))
    whole = torch.empty(world * 6)
    own = whole[rank * 6 : rank * 6 + 6].fill_(rank)
    communicator.all_gather(whole, own)
    assert whole.tolist() == [float(other) for other in range(world) for _ in range(6)]
    columns = [torch.empty(4, 2 * world)[:, ::world] for _ in range(world)]
    communicator.all_gather(columns, torch.full((4, 2), float(rank)))
    assert all(bool((column == other).all()) for other, column in enumerate(columns))
    communicator.all_reduce(torch.empty(0))
    waiting = [communicator.all_reduce_async(torch.full((n,), 1.0)) for n in (1, 100_000)]
    gathered = torch.empty(world)
    waiting.append(communicator.all_gather_async(gathered, torch.tensor([float(rank)])))
    late = torch.ones(10)
    communicator.all_reduce(late)  # in its turn, though it waits and the others do not
    assert late.tolist() == [float(world)] * 10
    for work in waiting:
        work.wait()
    assert gathered.tolist() == [float(other) for other in range(world)]


def refusals(topology: Topology) -> list[str]:
    """What is wrong on this rank alone is said before anything is sent."""
    communicator = Communicator.of_group(topology=topology)
    world = dist.get_world_size()
    texts = []
    for call in (
        lambda: communicator.all_gather(torch.empty(world * 2 + 1), torch.empty(2)),
        lambda: communicator.all_gather(torch.empty(world * 2), torch.empty(3)),
        lambda: communicator.reduce_scatter(torch.empty(3), torch.empty(world * 2)),
        lambda: communicator.reduce_scatter(torch.empty(2), [torch.empty(2)]),
        lambda: communicator.broadcast(torch.empty(2), world),
    ):
        try:
            call()
        except ValueError as error:
            texts.append(str(error))
    return texts


def late(topology: Topology) -> str:
    """The last rank does not take part: the others name it."""
    from datetime import timedelta

    from trainshed_runtime.collectives import Lost

    communicator = Communicator.of_group(topology=topology, timeout=timedelta(seconds=1))
    dist.barrier()  # a rank that leaves while others still connect is another failure
    if dist.get_rank() == dist.get_world_size() - 1:
        return ""
    said = []
    for _ in range(2):
        try:
            communicator.all_reduce(torch.ones(100_000))
        except Lost as error:
            said.append(str(error))
    assert len(said) == 2, "no failure"
    assert said[0] == said[1], "the second call began something"
    return said[0]
