"""How far each target is: its cursor, its failures, and what is given up. Functions of a write transaction.

Invariants: a cursor only grows, and passes an event only after it was delivered, was none of the target's business, or
was given up with an event that says so. What failed is tried again after a pause that doubles up to `LONGEST_PAUSE`;
after `FAILING_SECONDS` of failure in a row what is older than that is given up.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from trainshed_service.events import record
from trainshed_service.notifications.composing import Composer, load
from trainshed_service.notifications.kinds import DROPPED
from trainshed_service.notifications.outcome import Outcome
from trainshed_service.store.tables import changed, notification_targets

FAILING_SECONDS = 86_400.0
LONGEST_PAUSE = 600.0

_SOUND = {"failures": 0, "failing_since": None, "next_try_at": None, "last_error": None}


def pause_after(failures: int) -> float:
    """Seconds before the next try after so many failures in a row: 2, 4, 8 … `LONGEST_PAUSE`."""
    return min(LONGEST_PAUSE, 2.0 ** min(failures, 20))


def status_of(target: Any, now: float) -> str:
    """ok, retrying (the last delivery failed) or failing (for a day)."""
    if target.failing_since is None:
        return "ok"
    return "failing" if now - target.failing_since >= FAILING_SECONDS else "retrying"


def delivered(session: Session, target_id: str, event_id: int, now: float) -> bool:
    """The event has arrived. False where the target is gone."""
    values = {**_SOUND, "cursor": event_id, "delivered_at": now}
    return _advance(session, target_id, event_id, values) or load(session, target_id) is not None


def looked_at(session: Session, target_id: str, event_id: int) -> None:
    """Nothing up to this event is the target's business."""
    _advance(session, target_id, event_id, {"cursor": event_id})


def works(session: Session, target_id: str) -> None:
    """Something arrived there just now: try what waits at once."""
    session.execute(update(notification_targets).where(notification_targets.c.id == target_id).values(**_SOUND))


def failed(session: Session, target_id: str, outcome: Outcome, now: float) -> float | None:
    """When to try again (epoch seconds); None where the target is gone."""
    row = session.execute(
        select(notification_targets.c.failures, notification_targets.c.failing_since)
        .where(notification_targets.c.id == target_id)
        .with_for_update()
    ).first()
    if row is None:
        return None
    failures = row.failures + 1
    again = now + max(pause_after(failures), outcome.retry_after or 0.0)
    session.execute(
        update(notification_targets)
        .where(notification_targets.c.id == target_id)
        .values(
            failures=failures,
            failing_since=now if row.failing_since is None else row.failing_since,
            next_try_at=again,
            last_error=outcome.error,
        )
    )
    return again


def give_up_old(session: Session, composer: Composer, target_id: str, horizon: int, now: float) -> int:
    """After a day of failure: leave out what is older than a day, and record how much that was; how many events."""
    target = load(session, target_id)
    if target is None or status_of(target, now) != "failing":
        return 0
    lost, last = composer.old(session, target, now - FAILING_SECONDS, horizon)
    if not _advance(session, target_id, last, {"cursor": last}) or not lost:
        return 0
    count = sum(int(event.data["count"]) if event.kind == DROPPED else 1 for event in lost)
    began = min(float(event.data["from"]) if event.kind == DROPPED else event.at for event in lost)
    record(
        session,
        now,
        DROPPED,
        f"notification-target/{target_id}",
        f"{count} events could not be delivered to notification target {target_id} for a day and were given up",
        {"targetId": target_id, "count": count, "from": began, "to": lost[-1].at},
    )
    return count


def _advance(session: Session, target_id: str, event_id: int, values: dict[str, Any]) -> bool:
    here = (notification_targets.c.id == target_id) & (notification_targets.c.cursor < event_id)
    return changed(session, update(notification_targets).where(here).values(**values)) == 1
