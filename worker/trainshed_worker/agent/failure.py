"""From how an instance's processes ended to what a user can be told of it.

The text is the first of: what the job wrote to /opt/ml/output/failure, the last exception line of its log, nothing.
Exit code, signal, host and local rank are fields of their own, which the service puts into words.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from trainshed_worker.contract import InstanceLayout
from trainshed_worker.data.tree import read_head
from trainshed_worker.logs import last_lines
from trainshed_worker.protocol import FailureCause, InstanceFailure
from trainshed_worker.sandbox import ExitRecord

FAILURE_CHARACTERS = 1024
_TAG = re.compile(r"^\[\d+,\d+\]<std(?:out|err)>:\s?|^\[(?:rank|default)?\d+\]:\s?")
_EXCEPTION = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?[A-Za-z_]\w*(?:Error|Exception|Exit|Interrupt|Failure)\b(?::|$)")
_LAUNCHER = ("torch.distributed.elastic", "ChildFailedError", "subprocess.CalledProcessError", "SignalException")
_ELASTIC_LOCAL_RANK = re.compile(r"^\s*rank\s*:\s*\d+ \(local_rank: (\d+)\)")


def exception_line(lines: Sequence[str]) -> str | None:
    """The last line that looks like the end of a traceback and is not the launcher's own; None where there is none."""
    found: str | None = None
    for line in lines:
        text = _TAG.sub("", line).strip()
        if _EXCEPTION.match(text) and not any(mark in text for mark in _LAUNCHER):
            found = text
    return found


def reported_local_rank(lines: Sequence[str]) -> int | None:
    """The local rank that torchrun's own summary names as the first to fail."""
    for line in reversed(lines):
        match = _ELASTIC_LOCAL_RANK.match(_TAG.sub("", line))
        if match:
            return int(match.group(1))
    return None


def failure_text(layout: InstanceLayout, lines: Sequence[str]) -> str | None:
    """What the job says of its own failure, at most FAILURE_CHARACTERS."""
    raw = read_head(layout.ml, "output/failure", FAILURE_CHARACTERS * 4)
    if raw:
        text = raw.decode("utf-8", "replace").replace("\0", "").strip()[:FAILURE_CHARACTERS]
        if text:
            return text
    line = exception_line(lines)
    return line[:FAILURE_CHARACTERS] if line else None


def ending(record: ExitRecord) -> str:
    """What is known of an end that the job itself says nothing about; the service adds host, rank and exit code."""
    if record.oom:
        return "out of memory: the kernel ended the process at the instance's memory limit"
    return record.message


def exit_failure(record: ExitRecord, layout: InstanceLayout, host: str, ranked: bool) -> InstanceFailure | None:
    """The failure of an ended instance; None for success and for an end that was asked for.

    `ranked`: the commands' tags are local ranks.
    """
    if record.reason in ("sandbox-failed", "supervisor-lost"):
        return InstanceFailure(
            cause=FailureCause.NODE,
            message=f"the instance {host} was lost: {record.message or record.reason}"[:4096],
            exit_code=record.exit_code,
            signal=record.signal,
            at=record.ended_at,
        )
    if record.exit_code == 0 or record.reason in ("stopped", "deadline"):
        return None
    lines = [line.text for line in last_lines(Path(layout.spool))]
    first = next((command for command in record.commands if command.first_failure), None)
    local_rank = int(first.tag) if ranked and first is not None and first.tag.isdigit() else None
    if local_rank is None:
        local_rank = reported_local_rank(lines)
    text = failure_text(layout, lines)
    known = [part for part in (ending(record), text) if part]
    return InstanceFailure(
        cause=FailureCause.ALGORITHM,
        message=": ".join(known)[:4096],
        exit_code=record.exit_code,
        signal=record.signal,
        local_rank=local_rank,
        at=first.ended_at if first is not None else record.ended_at,
    )
