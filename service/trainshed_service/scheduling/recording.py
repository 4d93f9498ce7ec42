"""Keeps the planner's inputs and decisions on disk, so that they can be run again (`replay`).

A file begins with a header (policy, instance types of this installation), then has one line per step: time, events,
decisions. Its first step restores the whole state. When it has grown, the planner's state is written out as events,
*replaced by what these events restore*, and goes on in the next file: so a replay of any file gives the same decisions.

Invariants: it never blocks and never fails scheduling. Lines are encoded and written by a thread; where it can't keep
up or the disk refuses, recording stops until the next start, with one warning. The files together stay within the
limit: the oldest go first, and one that fills half of it before its snapshot comes ends there.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog

from trainshed_service.jobs.spec import Member
from trainshed_service.providers import added_types
from trainshed_service.scheduling.codec import decision_record, event_record
from trainshed_service.scheduling.events import (
    Decision,
    NodeFree,
    NodeTaken,
    PlannerEvent,
    PoolAvailable,
    PoolEnded,
    Quotas,
    Running,
    Usage,
)
from trainshed_service.scheduling.state import Policy, State

_log = structlog.get_logger(__name__)
FOLDER = "scheduler-inputs"
_FILES = 4
_MOST_WAITING = 10_000
_Line = tuple[float, Sequence[PlannerEvent], Sequence[Decision], bool]


class Recorder:
    """`limit_bytes` 0: nothing is recorded."""

    def __init__(self, home: Path, limit_bytes: int, policy: Policy) -> None:
        self._folder = home / FOLDER
        self._limit = limit_bytes
        self._policy = policy
        self._lines: queue.Queue[_Line | None] = queue.Queue(_MOST_WAITING)
        self._stopped = limit_bytes <= 0
        self._full = False
        self._thread: threading.Thread | None = None

    @property
    def wants_snapshot(self) -> bool:
        """The file has grown enough: the next line is to be a `restored` one."""
        return self._full and not self._stopped

    def restored(self, now: float, events: Sequence[PlannerEvent], decisions: Sequence[Decision]) -> None:
        """A state was made anew from these events; a new file begins."""
        self._full = False
        self._put((now, events, decisions, True))

    def stepped(self, now: float, events: Sequence[PlannerEvent], decisions: Sequence[Decision]) -> None:
        self._put((now, events, decisions, False))

    def close(self) -> None:
        """Write what waits."""
        if self._thread is not None and self._thread.is_alive():
            self._lines.put(None)
            self._thread.join()
        self._thread = None

    def _put(self, line: _Line) -> None:
        if self._stopped:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="scheduler-inputs", daemon=True)
            self._thread.start()
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._stop("the disk does not keep up")

    def _stop(self, why: str) -> None:
        self._stopped = True
        _log.warning("scheduler.inputs_not_recorded", why=why, folder=str(self._folder))

    def _run(self) -> None:
        try:
            self._write_all()
        except OSError as error:
            self._stop(f"{error.strerror or error}; recording starts again with the service")

    def _write_all(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        file = None
        size = base = 0
        try:
            while (line := self._lines.get()) is not None:
                now, events, decisions, anew = line
                text = _encode(now, events, decisions)
                if anew:
                    if file is not None:
                        file.close()
                    text = _header(self._policy) + text
                    if len(text) > self._limit // 2:
                        self._stop("a snapshot of the queue alone is larger than half of the limit")
                        return
                    file = self._next_file()
                    size, base = 0, len(text)
                if file is not None and size + len(text) > self._limit // 2:
                    file.close()  # this thread is behind, the next snapshot is due: what comes before it is left out
                    file, self._full = None, True
                if file is None:
                    continue
                file.write(text)
                file.flush()
                size += len(text)
                if size - base > self._limit // _FILES:
                    self._full = True
        finally:
            if file is not None:
                file.close()

    def _next_file(self) -> Any:
        there = sorted(self._folder.glob("*.jsonl"))
        number = int(there[-1].stem) + 1 if there else 1
        total = sum(path.stat().st_size for path in there)
        for path in there:
            if total <= self._limit // 2:
                break
            total -= path.stat().st_size
            path.unlink()
        return (self._folder / f"{number:08}.jsonl").open("wb")


def snapshot(state: State) -> list[PlannerEvent]:
    """Events that restore a state that decides as this one does from now on."""
    events: list[PlannerEvent] = [Quotas(state.quotas.rules)]
    for user in sorted(user for user in state.shares.accounts if user is not None):
        events.append(Usage(user, state.shares.used(user, state.now), state.now))
    fleet = state.fleet
    for node_id, node in fleet.nodes.items():
        kind = NodeFree if node.holding is None else NodeTaken
        events.append(kind(node_id, node.cls.types))
    for holding in fleet.jobs.values():
        events.append(
            Running(
                int(holding.key),
                holding.user_id,
                holding.role_arn,
                tuple(holding.types),
                tuple(Member(name) for name in holding.types.values()),
                holding.since,
                holding.ends_at,
                holding.expected_end,
            )
        )
    for pool in fleet.pools.values():
        types = set(pool.types.values())
        events.append(
            PoolAvailable(
                str(pool.key),
                pool.pool_key,
                pool.role_arn,
                pool.user_id,
                types.pop() if types else "",
                tuple(pool.types),
                pool.since,
                pool.ends_at,
            )
        )
        if pool.kind == "ending":
            events.append(PoolEnded(str(pool.key)))
    events += state.coming.values()
    events += [state.queue.jobs[job_id].job for job_id in sorted(state.queue.jobs)]
    return events


def _header(policy: Policy) -> bytes:
    record = {
        "policy": {
            "usage_half_life_seconds": policy.usage_half_life_seconds,
            "reclaim_warm_after_seconds": policy.reclaim_warm_after_seconds,
            "backfill": policy.backfill,
        },
        "types": added_types(),
    }
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def _encode(now: float, events: Sequence[PlannerEvent], decisions: Sequence[Decision]) -> bytes:
    record: dict[str, Any] = {"now": now, "events": [event_record(event) for event in events]}
    if decisions:
        record["decisions"] = [decision_record(decision) for decision in decisions]
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
