"""What ended an instance → what the job's user is told: one table.

Invariant: the loss of a node is never a success and never the user's error; only an infrastructure fault is retryable.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

from trainshed_service.jobs.states import Cause
from trainshed_worker.protocol import FailureCause, InstanceFailure

MAX_REASON = 1024


@dataclass(frozen=True)
class Row:
    cause: Cause
    prefix: str
    retryable: bool = False


TABLE: dict[FailureCause, Row] = {
    FailureCause.ALGORITHM: Row(Cause.ALGORITHM_ERROR, "AlgorithmError: "),
    FailureCause.USER_INPUT: Row(Cause.CLIENT_ERROR, "ClientError: "),
    FailureCause.NETWORK_ISOLATION: Row(Cause.CLIENT_ERROR, "ClientError: "),
    FailureCause.UNSUPPORTED: Row(Cause.CLIENT_ERROR, "ClientError: "),
    FailureCause.OUTPUT: Row(Cause.OUTPUT_ERROR, "ClientError: Artifact upload failed: "),
    FailureCause.NODE: Row(
        Cause.NODE_FAULT,
        "InternalServerError: We encountered an internal error. Please try again. ",
        retryable=True,
    ),
}


@dataclass(frozen=True)
class Verdict:
    """`reason` is the FailureReason, at most 1,024 characters."""

    cause: Cause
    reason: str
    retryable: bool


def signal_of(failure: InstanceFailure) -> int | None:
    """The signal that ended the process: as reported, or as a shell encodes it in an exit code (128 + n)."""
    if failure.signal:
        return failure.signal
    if failure.exit_code is not None and 128 < failure.exit_code < 128 + signal.NSIG:
        return failure.exit_code - 128
    return None


def describe_exit(failure: InstanceFailure) -> str:
    """'exit code 139 (SIGSEGV)', 'exit code 1', or '' where no process ended."""
    number = signal_of(failure)
    code = failure.exit_code
    if number is not None and (code is None or code < 0):
        code = 128 + number
    if code is None:
        return ""
    if number is None:
        return f"exit code {code}"
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return f"exit code {code} ({name})"


def verdict(failure: InstanceFailure, host: str) -> Verdict:
    """The verdict on a job whose earliest failure is `failure`, on `host` (algo-N)."""
    row = TABLE[failure.cause]
    where = host if failure.local_rank is None else f"{host} (local rank {failure.local_rank})"
    parts = [where]
    exit_words = describe_exit(failure)
    if exit_words:
        parts.append(exit_words)
    message = failure.message.strip()
    if message:
        parts.append(message)
    return Verdict(row.cause, shorten(row.prefix + ": ".join(parts)), row.retryable)


def shorten(text: str, limit: int = MAX_REASON) -> str:
    """At most `limit` characters; a cut is shown."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
