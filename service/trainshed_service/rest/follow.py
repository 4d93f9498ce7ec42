"""Following a job: its lines and its events until it has ended and all of both was given.

Invariants: whether the job has ended is read *before* the lines, and a job ends only after its last line is stored, so
the last pass gives everything; a follower that comes back with the last id that it got misses and repeats nothing. A
stream that ends without the event `end` (the service is about to restart, or the credential works no more) is to be
resumed, which tells why where it is refused. What a follower may see is asked anew in each pass: nothing that is
written after its user was deleted or its key revoked is given to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from trainshed_service.events import EventRecord
from trainshed_service.jobs.reach import Reach
from trainshed_service.logs import InvalidToken, TailLine
from trainshed_service.rest import sse
from trainshed_service.services import Services
from trainshed_service.wire.errors import ApiError, validation_error

SILENCE_SECONDS = 30.0
"""A host of a running job from which the ingest has heard nothing for so long is named to the follower."""

ReachNow = Callable[[], Awaitable[Reach | None]]
"""What the follower may see at this moment; None: its credential works no more."""

_TERMINAL = ("Completed", "Failed", "Stopped")
_SHORTEST_PAUSE = 0.2
_LONGEST_PAUSE = 1.0


async def status_of(services: Services, name: str, reach: Reach) -> str | None:
    """TrainingJobStatus; null where the job is not there (any more), or another user's has its name now."""
    try:
        return str((await services.jobs.describe(name, reach))["TrainingJobStatus"])
    except ApiError as error:
        if error.status < 500:
            return None
        raise


async def lines(
    services: Services,
    name: str,
    cursor: str | None,
    hosts: Sequence[str] | None,
    reach_now: ReachNow,
    *,
    in_batches: bool = False,
) -> AsyncIterator[str]:
    """Events `line`, `silence` and at last `end`, as text of an event stream. `in_batches`: instead of each `line`
    an event `lines` for those that were read together, with the cursors that they lie between."""
    pause = _SHORTEST_PAUSE
    quiet = 0.0
    silent: dict[str, int] = {}
    opened: Reach | None = None
    while not services.nodes.is_draining:
        reach = await reach_now()
        status = await status_of(services, name, reach) if reach is not None else None
        opened = opened or reach
        if reach is None or (status is None and reach != opened):  # not to be seen any more
            return
        if status is None:  # its lines went with it
            yield sse.event("end", {"status": "Deleted"})
            return
        page = await services.logs.tail(name, cursor, hosts=hosts)
        if in_batches and page.lines:
            batch = {"from": cursor, "to": page.cursor, "lines": [line_object(each) for each in page.lines]}
            yield sse.event("lines", batch, event_id=page.cursor)
        cursor = page.cursor or cursor
        for each in page.lines if not in_batches else ():
            yield sse.event("line", line_object(each), event_id=each.cursor)
        if not page.at_end:
            continue
        if status in _TERMINAL:
            yield sse.event("end", {"status": status})
            return
        for notice in await _silence(services, name, silent):
            yield sse.event("silence", notice)
        pause = _SHORTEST_PAUSE if page.lines else min(_LONGEST_PAUSE, pause * 1.5)
        quiet = 0.0 if page.lines else quiet + pause
        if quiet >= sse.KEEP_ALIVE_SECONDS:
            quiet = 0.0
            yield sse.KEEP_ALIVE
        await asyncio.sleep(pause)


async def events(services: Services, name: str, after: int, reach_now: ReachNow) -> AsyncIterator[str]:
    """Events of the job, each with its id, and at last `end`."""
    pause = _SHORTEST_PAUSE
    quiet = 0.0
    opened: Reach | None = None
    while not services.nodes.is_draining:
        reach = await reach_now()
        status = await status_of(services, name, reach) if reach is not None else None
        opened = opened or reach
        if reach is None or (status is None and reach != opened):  # not to be seen any more
            return
        page = await services.events.read(after, f"job/{name}")
        for each in page:
            after = each.id
            yield sse.event("job", event_object(each), event_id=each.id)
        if not page and (status is None or status in _TERMINAL):
            yield sse.event("end", {"status": status or "Deleted"})
            return
        pause = _SHORTEST_PAUSE if page else min(_LONGEST_PAUSE, pause * 1.5)
        quiet = 0.0 if page else quiet + pause
        if quiet >= sse.KEEP_ALIVE_SECONDS:
            quiet = 0.0
            yield sse.KEEP_ALIVE
        if not page:
            await asyncio.sleep(pause)


async def contact(services: Services, name: str) -> list[dict[str, Any]]:
    """How the shipping of each host's lines stands, newest attempt last."""
    now = services.clock.now()
    return [
        {
            "host": source.source,
            "attemptId": source.attempt_id,
            "lines": source.lines,
            "lastContact": source.last_contact_ms / 1000,
            "silentSeconds": max(0, int(now - source.last_contact_ms / 1000)),
        }
        for source in sorted(await services.logs.sources(name), key=lambda each: each.last_contact_ms)
    ]


async def _silence(services: Services, name: str, told: dict[str, int]) -> list[dict[str, Any]]:
    """Hosts that are silent, each told of again when another `SILENCE_SECONDS` have passed, and when it is back."""
    notices = []
    newest = {each["host"]: each for each in await contact(services, name)}
    for host, each in newest.items():
        level = int(each["silentSeconds"] // SILENCE_SECONDS)
        if level > told.get(host, 0):
            text = f"no log contact with {host} for {each['silentSeconds']} s"
            notices.append({"host": host, "seconds": each["silentSeconds"], "message": text})
        elif level == 0 and told.get(host, 0):
            notices.append({"host": host, "seconds": 0, "message": f"log contact with {host} is back"})
        told[host] = level
    return notices


async def check_cursor(services: Services, name: str, cursor: str | None) -> None:
    """ValidationException before a stream begins, when an error can still be told."""
    try:
        await services.logs.tail(name, cursor, limit=1)
    except InvalidToken as error:
        raise validation_error(f"The cursor is not valid: {error}.") from error


def line_object(each: TailLine) -> dict[str, Any]:
    """Times are epoch milliseconds, as CloudWatch Logs gives them."""
    return {
        "host": each.host,
        "stream": each.stream,
        "position": each.line.position,
        "timestamp": each.line.ms,
        "ingestionTime": each.line.ingested_ms,
        "text": each.line.text,
    }


def event_object(each: EventRecord) -> dict[str, Any]:
    """`at` is epoch seconds."""
    return {"id": each.id, "at": each.at, "kind": each.kind, "message": each.message, "data": each.data}
