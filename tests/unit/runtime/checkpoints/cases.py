"""What the ranks run: a training that is saved, ended, resumed under another degree and world, and its losses."""

from __future__ import annotations

import functools
import hashlib
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.support.depth import DEEP
from tests.unit.runtime.engine.training import Case, Tiny, make_engine, make_optimizer, state_of, tokens
from trainshed_runtime.checkpoints import Checkpointer, CheckpointFailed, commit
from trainshed_runtime.engine import Engine

SLOTS = 12 if DEEP else 4
"""Samples of a step, dealt to the ranks there are, so that every world trains on the same."""


def with_case(function: Callable[..., Any]) -> Callable[..., Any]:
    """The case comes as plain options, so that whoever asks need not import torch."""

    @functools.wraps(function)
    def call(options: dict[str, Any], *args: Any) -> Any:
        return function(Case(**options), *args)

    return call


def start(case: Case, seed: int = 11, timeout: float = 60) -> tuple[Engine, torch.optim.Optimizer, Checkpointer]:
    torch.manual_seed(seed)
    engine = make_engine(case, Tiny(case).to(torch.float64))
    optimizer = make_optimizer(case, engine.module.parameters())
    engine.attach(optimizer)
    return engine, optimizer, Checkpointer(engine.module, optimizer, timeout, lambda: engine.synchronized)


def step(engine: Engine, optimizer: torch.optim.Optimizer, number: int) -> float:
    """One optimizer step on the step's samples; the loss over all of them."""
    rank, world = dist.get_rank(), dist.get_world_size()
    mine = range(rank, SLOTS, world)
    loss = torch.stack([engine.module(tokens(number, 0, slot)) for slot in mine]).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    value = loss.detach().clone()
    dist.all_reduce(value, op=dist.ReduceOp.AVG)
    return float(value)


@with_case
def save_in_the_middle(case: Case, root: str, saved_after: int, more: int, wait: bool) -> list[float]:
    """Losses of an unbroken training; a checkpoint on the way, finished behind the next steps where not waited for."""
    engine, optimizer, checkpointer = start(case)
    losses = []
    for number in range(saved_after + more):
        if number == saved_after:
            pending = checkpointer.save(root, f"step{number}", extra={"next": number}, wait=wait)
        losses.append(step(engine, optimizer, number))
    pending.wait()
    checkpointer.wait()
    return losses


@with_case
def resume(case: Case, root: str, count: int, tag: str | None = None) -> list[float]:
    """The losses that follow the newest checkpoint; the model starts from other weights."""
    engine, optimizer, checkpointer = start(case, seed=5)
    first = checkpointer.load(root, tag)["next"]
    return [step(engine, optimizer, number) for number in range(first, first + count)]


def weights_of(engine: Engine) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(state_of(engine).items()):
        digest.update(name.encode() + value.numpy().tobytes())
    return digest.hexdigest()


@with_case
def die_while_saving(case: Case, root: str, point: str, victim: int) -> str:
    """A first save succeeds; in the second one the victim is killed at `point`. What the others are told."""
    engine, optimizer, checkpointer = start(case, timeout=5)
    step(engine, optimizer, 0)
    checkpointer.save(root, "good", extra={"next": 1})
    step(engine, optimizer, 1)

    def killed(at: str) -> None:
        if at == point and dist.get_rank() == victim:
            os.kill(os.getpid(), signal.SIGKILL)

    commit.reached = killed
    try:
        checkpointer.save(root, "second", extra={"next": 2})
    except CheckpointFailed as error:
        return str(error)
    return "saved"


@with_case
def fail_while_saving(case: Case, root: str) -> list[str]:
    """The last rank cannot write more than a few kilobytes once; then it can. What every rank is told."""
    checkpointer = start(case)[2]
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    if dist.get_rank() == dist.get_world_size() - 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, unlimited[1]))
    told = []
    try:
        checkpointer.save(root, "first", extra={"next": 0})
    except CheckpointFailed as error:
        told.append(str(error))
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    checkpointer.save(root, "first", extra={"next": 0})
    dist.barrier()
    told.append((Path(root) / "newest").read_text())
    return told


@with_case
def refuse(case: Case, root: str) -> list[str]:
    """What is said to a load that cannot be right, and to a save in the middle of an accumulation."""
    engine, _, checkpointer = start(case)
    told = []

    def refused(action: Any) -> None:
        try:
            action()
        except (ValueError, FileNotFoundError, CheckpointFailed) as error:
            told.append(str(error))

    refused(lambda: checkpointer.load(root))
    checkpointer.save(root, "a", extra=None)
    refused(lambda: checkpointer.load(root, "b"))
    refused(lambda: checkpointer.save(root, "../b"))
    wider = start(Case(degree=case.degree, hidden=case.hidden + 1))[2]
    refused(lambda: wider.load(root))
    deeper = start(Case(degree=case.degree, hidden=case.hidden, layers=case.layers + 1))[2]
    refused(lambda: deeper.load(root))
    with engine.hold():
        engine.module(tokens(0, 0, 0)).backward()
    refused(lambda: checkpointer.save(root, "c"))
    return told


@with_case
def keep_two(case: Case, root: str) -> list[str]:
    checkpointer = start(case)[2]
    for number in range(4):
        checkpointer.save(root, f"step{number}", kept=2)
    checkpointer.save(root, "step3", kept=2)
    dist.barrier()
    return sorted(entry.name for entry in Path(root).iterdir())


@with_case
def save_per_node(case: Case, root: str) -> list[str]:
    """Each node has a folder of its own, as hosts without a shared filesystem do."""
    own = f"{root}/{os.environ['NODE_RANK']}"
    checkpointer = start(case)[2]
    checkpointer.save(own, "local", extra={"next": 0})
    dist.barrier()
    return sorted(entry.name for entry in Path(own).iterdir())


def several(names: list[str], options: dict[str, Any], root: str) -> list[Any]:
    """Several of the functions above, one after the other, in the same ranks."""
    return [globals()[name](options, f"{root}/{name}") for name in names]
