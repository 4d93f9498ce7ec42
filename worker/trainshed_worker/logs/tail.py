"""Reading a spool that another process appends to: whole records only, from any offset.

Invariant: a record is handed out once per reader, in order; a torn last line (no newline yet) is left for later.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from trainshed_worker.protocol import LogLine

MAX_LINE = 1 << 20


@dataclass(frozen=True)
class SpoolBatch:
    """Lines and the offset after the last of them."""

    lines: list[LogLine]
    end: int


def spool_size(path: Path) -> int:
    """Bytes in the spool; 0 where there is none yet."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def read_batch(path: Path, offset: int, max_bytes: int, max_lines: int) -> SpoolBatch:
    """Records from `offset` on, within the limits (at least one where there is a whole one)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return SpoolBatch([], offset)
    try:
        data = os.pread(descriptor, max_bytes, offset)
        while data and b"\n" not in data and len(data) >= max_bytes:
            max_bytes *= 2
            data = os.pread(descriptor, max_bytes, offset)
    finally:
        os.close(descriptor)
    lines: list[LogLine] = []
    position = 0
    while len(lines) < max_lines:
        end = data.find(b"\n", position)
        if end < 0:
            break
        seq, timestamp_ms, stream, text = json.loads(data[position:end])
        lines.append(LogLine(seq=seq, timestamp_ms=timestamp_ms, stream=stream, text=text))
        position = end + 1
    return SpoolBatch(lines, offset + position)


def offset_of(path: Path, seq: int) -> int:
    """Where the record with number `seq` (or the first above it) begins; the end where there is none."""
    offset = 0
    while True:
        batch = read_batch(path, offset, 1 << 20, 10_000)
        if not batch.lines:
            return offset
        if batch.lines[-1].seq >= seq:
            break
        offset = batch.end
    while batch.lines and batch.lines[0].seq < seq:
        step = read_batch(path, offset, MAX_LINE, 1)
        if not step.lines or step.lines[0].seq >= seq:
            break
        offset = step.end
    return offset


def last_lines(path: Path, limit: int = 400, window: int = 256 << 10) -> list[LogLine]:
    """The last `limit` lines, at most `window` bytes of them."""
    size = spool_size(path)
    start = max(0, size - window)
    try:
        with path.open("rb") as file:
            file.seek(start)
            data = file.read(size - start)
    except FileNotFoundError:
        return []
    raw = data.split(b"\n")[(1 if start else 0) : -1]
    return [LogLine(seq=r[0], timestamp_ms=r[1], stream=r[2], text=r[3]) for r in map(json.loads, raw[-limit:])]
