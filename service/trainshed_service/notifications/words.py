"""Texts for people: lengths of time, times of day, and the commands that extend or end a pool."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

_EXTEND_SECONDS = 1800


def duration(seconds: float) -> str:
    """45 s, 3 min 20 s, 2 h 5 min."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def time_of_day(at: float) -> str:
    """The minute in the service's own time zone, with its name."""
    return datetime.fromtimestamp(at).astimezone().strftime("%H:%M %Z")


def iso(at: float) -> str:
    """Whole seconds in UTC, as EventBridge writes times."""
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def milliseconds(at: float) -> int:
    return round(at * 1000)


def instances(data: dict[str, Any]) -> str:
    """4 × ml.c5.xlarge; where they are of several types, 4 instances."""
    count, kind = data.get("instanceCount") or 1, data.get("instanceType")
    if kind:
        return f"{count} × {kind}"
    return f"{count} instance" + ("" if count == 1 else "s")


def pool_commands(name: str, longest_seconds: int) -> dict[str, str]:
    """What extends and what ends the pool of the job, by our command and by AWS's."""
    extend = min(_EXTEND_SECONDS, longest_seconds)
    aws = f"aws sagemaker update-training-job --training-job-name {name} --resource-config KeepAlivePeriodInSeconds="
    return {
        "Extend": f"trainshed keep-alive {name} {extend}",
        "End": f"trainshed keep-alive {name} 0",
        "ExtendAws": f"{aws}{extend}",
        "EndAws": f"{aws}0",
    }


def command_lines(commands: dict[str, str]) -> list[str]:
    return [
        f"Extend: {commands['Extend']}",
        f"    or: {commands['ExtendAws']}",
        f"End:    {commands['End']}",
        f"    or: {commands['EndAws']}",
    ]
