"""What the ranks run: steps that are reported, and collectives to which a rank does not come."""

from __future__ import annotations

import io
import os
import signal
import threading
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from tests.unit.runtime.engine.training import LENGTH, Case, make_engine, make_optimizer, tokens
from trainshed_runtime.collectives import Communicator
from trainshed_runtime.telemetry import watch_engine
from trainshed_runtime.watchdog import RanksMissing, Watchdog


def reported(steps: int) -> dict[str, Any]:
    """Steps in which rank 1 has more to compute than the others, who wait for it."""
    case = Case(degree=2)
    engine = make_engine(case)
    optimizer = make_optimizer(case, engine.module.parameters())
    engine.attach(optimizer)
    out = io.StringIO()
    watch_engine(engine, optimizer, every=2, loss_scale=lambda: 64.0, out=out)
    for step in range(steps):
        begun = time.process_time()
        while dist.get_rank() == 1 and time.process_time() - begun < 0.1:
            torch.zeros(10).sum()
        engine.module(tokens(step, 0, dist.get_rank())).backward()
        optimizer.step()
        optimizer.zero_grad()
    return {"lines": out.getvalue().splitlines(), "tokens": 2 * LENGTH * dist.get_world_size()}


def hung(timeout: float) -> dict[str, Any]:
    """Rank 2 stays away, alive, from an all-reduce of gloo's and from one of ours; what the others are told."""
    store = dist.distributed_c10d._get_default_store()
    communicator = Communicator.of_group(timeout=timedelta(seconds=10))  # for gloo's part, which nothing can wake
    group = dist.group.WORLD
    assert group is not None
    out = io.StringIO()
    watchdog = Watchdog(timeout, interrupt=[communicator.close], groups=[group], out=out, grace=40)
    with watchdog.expect("the first, to which all come"):
        dist.barrier()
        communicator.all_reduce(torch.zeros(100_000))
    if dist.get_rank() == 2:
        for rank in range(2):
            store.wait([f"done/{rank}"], timedelta(seconds=60))
        watchdog.close()
        return {}
    told = []
    for name in ("ours", "gloo's"):
        begun = time.monotonic()
        try:
            with watchdog.expect(f"gradients by {name}"):
                if name == "ours":
                    communicator.all_reduce(torch.zeros(100_000))
                else:
                    dist.all_reduce(torch.zeros(100_000))
        except RanksMissing as error:
            told.append((str(error), error.ranks, time.monotonic() - begun))
    store.set(f"done/{dist.get_rank()}", "1")
    watchdog.close()
    return {"told": told, "printed": out.getvalue()}


def script(stuck: int) -> dict[str, Any]:
    """A script of smp with both switches on; in its third step the rank `stuck` stays away."""
    import smdistributed.modelparallel.torch as smp
    from tests.unit.runtime.engine.training import make_model

    smp.init({"ddp": True, "sharded_data_parallel_degree": 2})
    model = smp.DistributedModel(make_model(Case()))
    optimizer = smp.DistributedOptimizer(make_optimizer(Case(), model.parameters()))
    store = dist.distributed_c10d._get_default_store()
    for number in range(3):
        if number == 2 and dist.get_rank() == stuck:
            store.wait(["told"], timedelta(seconds=60))
            return {}
        try:
            model.backward(model(tokens(number, 0, dist.get_rank())))
            optimizer.step()
            optimizer.zero_grad()
        except RanksMissing as error:
            store.set("told", "1")
            return {"told": str(error), "ranks": error.ranks}
    return {"told": "nothing"}


def dead(timeout: float) -> str:
    """Rank 1 is killed; rank 0 is told at once, then waits where nothing can interrupt it."""
    watchdog = Watchdog(timeout, grace=0.2)
    with watchdog.expect("the first"):
        dist.barrier()
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        with watchdog.expect("the second"):
            dist.all_reduce(torch.zeros(10))
    except RanksMissing as error:
        print(f"told: {error} {error.ranks}")
    with watchdog.expect("the third"):
        threading.Event().wait()
    return "never"
