"""States, causes and lengths of time in words: what a person reads instead of codes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from trainshed_service.jobs.states import JobState

_S = JobState


@dataclass(frozen=True)
class Shown:
    """`tone` is a class of the style sheet; no meaning is told by colour alone."""

    label: str
    tone: str
    meaning: str


STATES: dict[JobState, Shown] = {
    _S.QUEUED: Shown("Waiting", "wait", "Waits for instances"),
    _S.PLACED: Shown("Starting", "work", "Instances are prepared"),
    _S.DOWNLOADING: Shown("Downloading", "work", "Input data and code are downloaded"),
    _S.TRAINING: Shown("Training", "run", "Training runs on every instance"),
    _S.STOPPING: Shown("Stopping", "wait", "Processes end and what they wrote is kept"),
    _S.UPLOADING: Shown("Uploading", "work", "The model and the output are stored"),
    _S.COMPLETED: Shown("Completed", "good", "Finished; the model is stored"),
    _S.FAILED: Shown("Failed", "bad", "Failed"),
    _S.STOPPED: Shown("Stopped", "off", "Stopped"),
    _S.DELETING: Shown("Deleting", "off", "Is being deleted"),
}
FILTERS: dict[str, tuple[JobState, ...]] = {
    "waiting": (_S.QUEUED,),
    "running": (_S.PLACED, _S.DOWNLOADING, _S.TRAINING, _S.UPLOADING, _S.STOPPING),
    "completed": (_S.COMPLETED,),
    "failed": (_S.FAILED,),
    "stopped": (_S.STOPPED,),
}
_STOPS = {"stop-requested": "Stopped on request", "max-runtime": "Stopped at its maximum runtime"}


def reason(state: JobState, *, waiting: str | None, failure: str | None, stop_reason: str | None) -> str:
    """Why a job is where it is, in one sentence."""
    if state is _S.QUEUED and waiting:
        return waiting
    if state is _S.FAILED and failure:
        return failure
    if state in (_S.STOPPED, _S.STOPPING) and stop_reason in _STOPS:
        words = _STOPS[stop_reason]
        return words if state is _S.STOPPED else words.replace("Stopped", "Stopping", 1)
    return STATES[state].meaning


def duration(seconds: float | None) -> str:
    """`0.4 s`, `12 s`, `3 min 5 s`, `2 h 7 min`, `3 d 4 h`."""
    if seconds is None:
        return "–"
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def moment(epoch: float | None) -> str:
    """UTC, to the second."""
    return "–" if epoch is None else datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def minute(epoch: float) -> str:
    """UTC, to the minute: for times that are estimated."""
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%d %H:%M UTC")


def iso(epoch: float) -> str:
    return datetime.fromtimestamp(epoch, UTC).isoformat(timespec="seconds")


def size(count: float | None) -> str:
    """Bytes in binary units."""
    if count is None:
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def number(value: float) -> str:
    """Four significant digits, written out: an exponent only where the digits would not fit."""
    return f"{float(f'{value:.4g}'):.15g}"
