"""Memory per rank of sharded training against what the planner says (`python -m benchmarks.memory`).

Ranks are processes over loopback; each trains a GPT in float32 with AdamW through the engine. Measured is the highest
resident memory of a step over what the process held when torch was imported and the group was there, but no model; the
first step is left out, since it makes the optimizer's states. The planner is given the same shape and no more.

    python -m benchmarks.memory [--width 640] [--layers 12] [--world 2] [--degrees 1 2] [--live N]
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.runtime_shape import Shape
from trainshed_runtime.planner.memory import Settings, rank_memory
from trainshed_runtime.planner.shape import Shape as Planned
from trainshed_runtime.planner.sizes import shown_bytes

_STEPS = 3


def predicted(shape: Shape, parameters: int, degree: int, live: int) -> tuple[int, int]:
    """(states, all) in bytes, by the planner."""
    planned = Planned(parameters, shape.width, shape.layers, shape.heads, shape.vocabulary, shape.sequence)
    settings = Settings(
        precision="fp32",
        micro_batch=shape.batch,
        checkpointing=0,
        flash_attention=True,
        dropout=False,
        max_live=live,
    )
    memory = rank_memory(planned, degree, settings)
    return memory.states, memory.total


def rank(options: argparse.Namespace) -> None:
    """One rank: trains, and prints `parameters bytes` from rank 0."""
    import torch
    import torch.distributed as dist

    from benchmarks.runtime_model import Block, batches, make
    from trainshed_runtime.engine import Engine, EngineConfig
    from trainshed_runtime.mesh import MicsMesh

    store = dist.FileStore(options.store, options.world)
    dist.init_process_group("gloo", store=store, rank=options.rank, world_size=options.world)
    mesh = MicsMesh.create(options.degree)
    dist.barrier()
    torch.ones(64, 64) @ torch.ones(64, 64)
    base = _resident()
    shape = _shape(options)
    config = EngineConfig(max_live_parameters=options.live)
    model = make(shape)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    engine = Engine(model, mesh, config, blocks=[Block])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    engine.attach(optimizer)
    (batch,) = batches(shape, 1, options.rank)
    highest = 0
    for step in range(_STEPS):
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")  # begin the high-water mark anew
        model(batch).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step:
            highest = max(highest, _resident("VmHWM"))
    found = torch.tensor([highest - base])
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    if options.rank == 0:
        print(parameters, int(found), flush=True)
    dist.barrier()


def _resident(name: str = "VmRSS") -> int:
    """Bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"the kernel does not tell {name}")


def _shape(options: argparse.Namespace) -> Shape:
    return Shape(width=options.width, layers=options.layers, heads=options.width // 64, batch=options.batch)


def measure(options: argparse.Namespace, degree: int) -> tuple[int, int]:
    """(parameters, bytes of the largest rank)."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "benchmarks.memory", *sys.argv[1:], "--store", f"{folder}/store"]
        single = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
        # A block that is freed goes back to the system, as a device's allocator reuses it.
        env = {**os.environ, **single, "GLOO_SOCKET_IFNAME": "lo", "MALLOC_MMAP_THRESHOLD_": "65536"}
        env["MALLOC_ARENA_MAX"] = "1"
        ranks = [
            subprocess.Popen(
                [*words, "--rank", str(number), "--degree", str(degree)],
                env=env,
                stdout=subprocess.PIPE if number == 0 else None,
                text=True,
            )
            for number in range(options.world)
        ]
        try:
            output = ranks[0].communicate()[0]
            if any(each.wait() for each in ranks):
                raise SystemExit(f"a rank failed at degree {degree}")
        finally:
            for each in ranks:
                if each.poll() is None:
                    each.kill()
        parameters, held = output.split()
        return int(parameters), int(held)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=640)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--degrees", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--live", type=int, default=0, help="max_live_parameters")
    for name in ("--rank", "--degree"):
        parser.add_argument(name, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        rank(options)
        return
    print(f"{'degree':>6} {'states':>10} {'planned':>10} {'measured':>10} {'measured/planned':>17}")
    for degree in options.degrees:
        parameters, held = measure(options, degree)
        states, total = predicted(_shape(options), parameters, degree, options.live)
        print(
            f"{degree:>6} {shown_bytes(states):>10} {shown_bytes(total):>10} {shown_bytes(held):>10} "
            f"{held / total:>17.3f}"
        )


if __name__ == "__main__":
    main()
