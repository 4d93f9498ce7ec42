"""Why a job waits, in words for the person who waits."""

from __future__ import annotations

from datetime import UTC, datetime

from trainshed_service.scheduling.events import WITHDRAWN
from trainshed_service.scheduling.matching import shortfall
from trainshed_service.scheduling.pooling import promise
from trainshed_service.scheduling.queue import Waiting
from trainshed_service.scheduling.state import State

MOST_ROLES = 3


def reason(state: State, waiting: Waiting) -> str:
    """E.g. 'Waiting for capacity: needs 4 × ml.c5.xlarge; 1 free, 2 warm for role X until 14:03 UTC, 1 busy'."""
    job, shape, fleet = waiting.job, waiting.shape, state.fleet
    broken = state.quotas.broken(job.user_id, job.role_arn, shape.needs)
    if broken is not None:
        return f"Waiting: {state.quotas.words(broken, shape.needs)}"
    if promise(state, waiting) is not None:
        return "Waiting for a warm pool that it matches: the instances are being emptied, which takes a moment"
    needs = " and ".join(f"{count} × {name}" for name, count in shape.needs)
    classes = shape.classes(fleet)
    free = sum(fleet.free[index] for index in classes)
    present = sum(fleet.classes[index].present for index in classes)
    warm, told = _warm(state, classes)
    parts = [f"{free} free", *told, f"{present - free - warm} busy"]
    words = f"Waiting for capacity: needs {needs}; {', '.join(parts)}"
    if not shape.ever(fleet):
        lacking = shortfall(shape.needs, fleet.present(), fleet.accepting)
        drained = sum(cls.present for cls in fleet.classes if cls.types == WITHDRAWN)
        more = f"; {drained} {'is' if drained == 1 else 'are'} being drained" if drained else ""
        return f"{words}. More than all present nodes together: the job waits until {lacking} join{more}"
    if shape.fits(fleet) is not None:
        return f"{words}. What is free is kept for jobs ahead, which this one would delay"
    return words


def clock(time: float) -> str:
    """'14:03 UTC'."""
    return datetime.fromtimestamp(time, UTC).strftime("%H:%M UTC")


def moment(time: float) -> str:
    """'2026-11-30 14:03 UTC'."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M UTC")


def role_name(arn: str) -> str:
    return arn.rpartition("/")[2] or arn


def _warm(state: State, classes: frozenset[int]) -> tuple[int, list[str]]:
    """How many nodes are warm, and in words for whom and until when."""
    by_role: dict[str, tuple[int, float]] = {}
    total = 0
    for pool in state.fleet.pools_of(classes):
        count = sum(number for index, number in pool.counts.items() if index in classes)
        if count:
            total += count
            role = "" if pool.kind == "ending" else role_name(pool.role_arn)
            known, until = by_role.get(role, (0, 0.0))
            by_role[role] = (known + count, max(until, pool.ends_at))
    ordered = sorted(by_role.items(), key=lambda item: (-item[1][0], item[0]))
    told = [
        f"{count} warm for role {role} until {clock(until)}" if role else f"{count} being given back"
        for role, (count, until) in ordered[:MOST_ROLES]
    ]
    rest = sum(count for _, (count, _) in ordered[MOST_ROLES:])
    return total, [*told, f"{rest} warm for other roles"] if rest else told
