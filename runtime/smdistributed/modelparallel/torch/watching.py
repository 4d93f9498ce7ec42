"""What watches a script of smp where the job's Environment asks for it.

TRAINSHED_TELEMETRY=N prints a line about every N-th optimizer step. TRAINSHED_WATCHDOG_SECONDS=S names the ranks that
the others have waited for S seconds long, in a forward or backward pass or in a step, and makes an error of the wait.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smdistributed.modelparallel.torch.model import DistributedModel
    from smdistributed.modelparallel.torch.optimizer import DistributedOptimizer
    from trainshed_runtime.watchdog import Watchdog

TELEMETRY, WATCHDOG = "TRAINSHED_TELEMETRY", "TRAINSHED_WATCHDOG_SECONDS"


def watch(model: DistributedModel, optimizer: DistributedOptimizer) -> Watchdog | None:
    """Begin what the environment asks for; a collective call, made by every rank with the same environment."""
    every, seconds = _number(TELEMETRY), _number(WATCHDOG)
    if every is not None:
        from trainshed_runtime.telemetry import watch_engine

        scale = (lambda: optimizer.loss_scale) if optimizer.scales else (lambda: None)
        watch_engine(model.engine, optimizer.optimizer, max(1, round(every)), scale)
    if seconds is None:
        return None
    import torch.distributed as dist

    from trainshed_runtime.watchdog import Watchdog

    mesh = model.engine.mesh
    groups = [group for group in (dist.group.WORLD, mesh.partition_group, mesh.replication_group) if group is not None]
    watchdog = Watchdog(seconds, [one.close for one in model.engine._communicators], groups=groups)
    watchdog.guard(model, "forward", "a forward pass")
    watchdog.guard(model, "backward", "a backward pass")
    watchdog.guard(optimizer, "step", "an optimizer step")
    return watchdog


def _number(name: str) -> float | None:
    """The variable's value above 0; None where it is not set, or 0. ValueError that names it."""
    text = os.environ.get(name, "").strip()
    try:
        value = float(text or 0)
    except ValueError:
        raise ValueError(f"{name} is {text!r}; it must be a number") from None
    return value if value > 0 else None
