"""Batches of log lines, and reading a stream whole."""

from __future__ import annotations

from collections.abc import Iterable

from trainshed_service.clock import ManualClock
from trainshed_service.logs import Line, LogStore
from trainshed_worker.protocol import LogBatch, LogLine

NOW_MS = int(ManualClock().now() * 1000)


def line(seq: int, text: str | None = None, *, stream: str = "algo-1", ms: int | None = None) -> LogLine:
    return LogLine(
        seq=seq,
        timestamp_ms=NOW_MS + seq if ms is None else ms,
        stream=stream,
        text=f"line {seq}" if text is None else text,
    )


def batch(
    lines: Iterable[LogLine], *, source: str = "algo-1", attempt: str = "attempt-1", job: str = "job"
) -> LogBatch:
    return LogBatch(job_name=job, attempt_id=attempt, source=source, lines=list(lines))


async def read_all(store: LogStore, stream: str = "job/algo-1-100", limit: int = 10_000) -> list[Line]:
    """Every line, paging forward from the head until the token repeats."""
    page = await store.get_events(stream, from_head=True, limit=limit)
    lines = list(page.lines)
    while True:
        following = await store.get_events(stream, token=page.forward_token, limit=limit)
        if following.forward_token == page.forward_token:
            assert not following.lines
            return lines
        lines += following.lines
        page = following
