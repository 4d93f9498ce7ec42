"""What a step cost: one line per step on rank 0, of `name=value` words that MetricDefinitions' patterns read.

    [trainshed] step=12 seconds=0.532 tokens_per_second=3851.2 tflops=0.041 communication_seconds=0.21
    node_bytes=55400000 local_bytes=120400000 slowest_rank=3 slowest_lead=0.012 loss_scale=65536        (on one line)

`tokens_per_second`: of all ranks. `tflops`: achieved per rank, in units of 10^12 per second, by the usual count of
six operations per parameter and token (more where the caller says so). `communication_seconds`: how long collectives
were under way on the average rank; they may run beside arithmetic. `node_bytes`: what left the busiest node in the
step, by its network interfaces' counters, headers and all; `local_bytes`: what its ranks sent each other over loopback.
`slowest_rank`: the one that waited least in collectives, since the others waited for it, by `slowest_lead` seconds less
than the average. Invariant: a figure that cannot be measured is left out, never guessed.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TextIO

import torch
import torch.distributed as dist

MARK = "[trainshed]"
_NUMBER = r"([-+]?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)"
METRICS = (
    *("seconds", "tokens_per_second", "tflops", "communication_seconds", "node_bytes", "local_bytes"),
    *("slowest_rank", "slowest_lead", "loss_scale", "loss"),
)
_NETWORK, _FABRIC = Path("/sys/class/net"), Path("/sys/class/infiniband")


def metric_definitions() -> list[dict[str, str]]:
    """MetricDefinitions for a CreateTrainingJob request: one for each word of the line."""
    pattern = r"\[trainshed\] .*?\b{}=" + _NUMBER
    return [{"Name": f"trainshed:{name}", "Regex": pattern.format(name)} for name in METRICS]


@dataclass(frozen=True)
class Report:
    """One step, over all ranks; None: could not be measured."""

    step: int
    seconds: float
    tokens_per_second: float
    tflops: float
    communication_seconds: float | None
    node_bytes: int | None
    local_bytes: int | None
    slowest_rank: int | None
    slowest_lead: float | None
    loss_scale: float | None = None
    loss: float | None = None

    def line(self) -> str:
        """As it is printed."""
        words = [f"{name}={_plain(value)}" for name, value in vars(self).items() if value is not None]
        return f"{MARK} {' '.join(words)}"


class Meter:
    """Seconds that collectives were under way since the last `take`; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds = 0.0
        self.used = False

    @contextmanager
    def timed(self) -> Iterator[None]:
        """The block is communication."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            with self._lock:
                self._seconds += time.perf_counter() - begun
                self.used = True

    def take(self) -> float:
        with self._lock:
            seconds, self._seconds = self._seconds, 0.0
            return seconds

    def wrap(self, holder: Any, name: str) -> None:
        """Count the time inside `holder.name`, a method, as communication."""
        inner = getattr(holder, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            with self.timed():
                return inner(*args, **kwargs)

        setattr(holder, name, call)


class LinkCounters:
    """Bytes that this machine (or the job's own network namespace) has sent since the last `take`."""

    def __init__(self, network: Path = _NETWORK, fabric: Path = _FABRIC) -> None:
        self._network, self._fabric = network, fabric
        self._last = self._read()

    def take(self) -> tuple[int, int] | None:
        """(over its links, over loopback); None where the kernel shows no counters."""
        now, last = self._read(), self._last
        self._last = now
        if now is None or last is None:
            return None
        return max(0, now[0] - last[0]), max(0, now[1] - last[1])

    def _read(self) -> tuple[int, int] | None:
        try:
            interfaces = sorted(self._network.iterdir())
        except OSError:
            return None
        sent, local = 0, 0
        for interface in interfaces:
            value = _counter(interface / "statistics" / "tx_bytes")
            if interface.name == "lo":
                local += value
            else:
                sent += value
        for counter in self._fabric.glob("*/ports/*/hw_counters/tx_bytes"):  # EFA; its traffic passes no interface
            sent += _counter(counter)
        return sent, local


class Telemetry:
    """Counts and prints; `step` is called by every rank after each optimizer step: a small collective call.

    `flops_per_token`: of a forward and backward pass, by default six per parameter. `every`: steps per line. `group`:
    its ranks, gloo; made here where there is a world and none is given.
    """

    def __init__(
        self,
        parameters: int,
        flops_per_token: float | None = None,
        every: int = 1,
        out: TextIO | None = None,
        meter: Meter | None = None,
        counters: LinkCounters | None = None,
        timeout: float = 600.0,
    ) -> None:
        if every < 1:
            raise ValueError(f"every is {every}; it must be at least 1")
        self.meter = meter or Meter()
        self._flops = flops_per_token if flops_per_token is not None else 6.0 * parameters
        self._every = every
        self._out = out
        self._counters = counters or LinkCounters()
        self._group = None
        if dist.is_initialized() and dist.get_world_size() > 1:
            self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout))
        self._steps = 0
        self._tokens = 0
        self._begun = time.perf_counter()

    def count(self, tokens: int) -> None:
        """Tokens that this rank has read."""
        self._tokens += tokens

    def step(self, tokens: int = 0, loss_scale: float | None = None, loss: float | None = None) -> Report | None:
        """End a step; the report where it is due, None otherwise. `tokens`: of this rank, besides what was counted."""
        self._tokens += tokens
        self._steps += 1
        if self._steps % self._every:
            return None
        seconds = (time.perf_counter() - self._begun) / self._every
        sent = self._counters.take() or (-1, -1)
        own = [seconds, self._tokens / self._every, self.meter.take() / self._every, float(self.meter.used)]
        ranks = self._gathered([*own, *(value / self._every if value >= 0 else -1.0 for value in sent)])
        report = self._report(ranks, loss_scale, loss)
        if self._group is None or dist.get_rank(self._group) == 0:
            print(report.line(), file=self._out or sys.stdout, flush=True)
        self._tokens = 0
        self._begun = time.perf_counter()
        return report

    def _report(self, ranks: list[list[float]], loss_scale: float | None, loss: float | None) -> Report:
        seconds = max(rank[0] for rank in ranks)
        tokens = sum(rank[1] for rank in ranks)
        waited = [rank[2] for rank in ranks]
        measured = all(rank[3] for rank in ranks)
        average = sum(waited) / len(waited)
        slowest = min(range(len(waited)), key=waited.__getitem__)
        told = measured and len(ranks) > 1
        node, local = max(rank[4] for rank in ranks), max(rank[5] for rank in ranks)
        return Report(
            step=self._steps,
            seconds=seconds,
            tokens_per_second=tokens / seconds if seconds > 0 else 0.0,
            tflops=tokens / len(ranks) * self._flops / seconds / 1e12 if seconds > 0 else 0.0,
            communication_seconds=average if measured else None,
            node_bytes=round(node) if node >= 0 else None,
            local_bytes=round(local) if local >= 0 else None,
            slowest_rank=slowest if told else None,
            slowest_lead=average - waited[slowest] if told else None,
            loss_scale=loss_scale,
            loss=loss,
        )

    def _gathered(self, own: list[float]) -> list[list[float]]:
        if self._group is None:
            return [own]
        mine = torch.tensor(own, dtype=torch.float64)
        everybody = [torch.empty_like(mine) for _ in range(dist.get_world_size(self._group))]
        dist.all_gather(everybody, mine, group=self._group)
        return [rank.tolist() for rank in everybody]


def watch_engine(
    engine: Any,
    optimizer: torch.optim.Optimizer,
    every: int = 1,
    loss_scale: Callable[[], float | None] = lambda: None,
    flops_per_token: float | None = None,
    out: TextIO | None = None,
) -> Telemetry:
    """A Telemetry that counts by itself: tokens are the integers that the module is given first, communication is what
    the engine's collectives take, and a step is one of `optimizer`. A collective call of the world."""
    telemetry = Telemetry(sum(p.numel() for p in engine.parameters()), flops_per_token, every, out)
    for communicator in engine._communicators:
        for name in ("_all_gather", "_reduce_scatter"):
            telemetry.meter.wrap(communicator, name)
    telemetry.meter.wrap(engine._sync, "finish")

    def count(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if torch.is_grad_enabled():
            given = (*args, *kwargs.values())
            tokens = (value for value in given if isinstance(value, torch.Tensor) and not value.is_floating_point())
            telemetry.count(next((value.numel() for value in tokens), 0))

    engine.module.register_forward_pre_hook(count, with_kwargs=True)
    optimizer.register_step_post_hook(lambda *_: telemetry.step(loss_scale=loss_scale()))
    return telemetry


def _counter(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


def _plain(value: float) -> str:
    """Short, and never in a form that a pattern would miss."""
    if isinstance(value, int):
        return str(value)
    return f"{value:.6g}"
