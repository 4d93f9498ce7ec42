"""Samples of what an instance uses, named as on SageMaker: CPUUtilization, MemoryUtilization, in percent, per host.

CPUUtilization is 100 for each core kept busy (200 for two), as on SageMaker; MemoryUtilization is of the instance's
memory.
"""

import asyncio
import time

from trainshed_worker.agent.state import AssignmentState
from trainshed_worker.protocol import MetricPoint
from trainshed_worker.sandbox import SandboxError
from trainshed_worker.sandbox.handle import InstanceHandle

SAMPLE_SECONDS = 10.0
FIRST_SECONDS = 1.0
"""The first sample is not taken while the processes start, whose cores it would use."""


async def sample_usage(state: AssignmentState, handle: InstanceHandle) -> None:
    """Sample until cancelled; a machine without accounting gives no points."""
    total = min(state.assignment.memory_bytes or state.context.facts.memory_bytes, state.context.facts.memory_bytes)
    host = state.assignment.host.name
    previous: tuple[float, float] | None = None
    await asyncio.sleep(FIRST_SECONDS)
    while True:
        try:
            usage = await asyncio.to_thread(handle.usage)
        except (SandboxError, OSError):
            return
        now = time.monotonic()
        stamp = int(time.time() * 1000)
        points: list[MetricPoint] = []
        if usage.cpu_seconds is not None:
            if previous is not None and now > previous[0]:
                share = 100 * (usage.cpu_seconds - previous[1]) / (now - previous[0])
                points.append(MetricPoint(name="CPUUtilization", value=max(0.0, share), timestamp_ms=stamp, host=host))
            previous = (now, usage.cpu_seconds)
        if usage.memory_bytes is not None and total > 0:
            share = 100 * usage.memory_bytes / total
            points.append(MetricPoint(name="MemoryUtilization", value=share, timestamp_ms=stamp, host=host))
        state.shipper.add_points(points)
        await asyncio.sleep(SAMPLE_SECONDS if previous is None or points else 1.0)
