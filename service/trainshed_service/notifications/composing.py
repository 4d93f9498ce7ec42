"""The next message for a target, from the rows: event log, job, tags, user. Reads only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainshed_service.identity import IdentityService
from trainshed_service.jobs import describe
from trainshed_service.notifications import messages
from trainshed_service.notifications.kinds import DROPPED, JOB_KINDS, kinds_of
from trainshed_service.notifications.messages import Happening, Message, Place
from trainshed_service.notifications.receivers import Receiver, Sight, sight_of
from trainshed_service.settings import Settings
from trainshed_service.store.tables import events, jobs, notification_targets, tags, users

_PAGE = 100


@dataclass(frozen=True)
class Found:
    """The next event that is the target's business; `message` may be late."""

    event: Happening
    message: Message


class Composer:
    def __init__(self, identity: IdentityService, settings: Settings, place: Place) -> None:
        self._identity = identity
        self._settings = settings
        self._place = place

    def next(self, session: Session, target: Any, after: int, horizon: int, now: float) -> Found | None:
        """The first message with an event id above `after`, at most `horizon`; None where there is none."""
        receiver = self.receiver(session, target)
        if receiver is None:
            return None
        while True:
            page = _page(session, target, after, horizon)
            for event in page:
                sight = self._sight(session, receiver, event)
                if sight is not None:
                    return Found(event, self._compose(session, event, sight, now))
            if len(page) < _PAGE:
                return None
            after = page[-1].id

    def old(self, session: Session, target: Any, before: float, horizon: int) -> tuple[list[Happening], int]:
        """Events for the target from before `before` that are not delivered, and the id of the last one looked at."""
        receiver = self.receiver(session, target)
        after = int(target.cursor)
        found: list[Happening] = []
        while receiver is not None:
            page = _page(session, target, after, horizon)
            for event in page:
                if event.at >= before:
                    return found, after
                if self._sight(session, receiver, event) is not None:
                    found.append(event)
                after = event.id
            if len(page) < _PAGE:
                break
        return found, after

    def receiver(self, session: Session, target: Any) -> Receiver | None:
        """None where the target's user is gone."""
        if target.user_id is None:
            return Receiver(target.id, None)
        name = session.scalar(select(users.c.name).where(users.c.id == target.user_id, users.c.deleted_at.is_(None)))
        principal = None if name is None else self._identity.user_principal(session, name)
        return None if principal is None else Receiver(target.id, principal)

    def test(self, target_id: str, now: float) -> Message:
        return messages.sample(self._place, now, target_id)

    def _sight(self, session: Session, receiver: Receiver, event: Happening) -> Sight | None:
        return sight_of(session, receiver, event.kind, event.data, self._identity.passing, self._settings)

    def _compose(self, session: Session, event: Happening, sight: Sight, now: float) -> Message:
        if event.kind == DROPPED:
            return messages.dropped(event, self._place)
        if event.kind not in JOB_KINDS:
            return messages.pool_changed(event, sight, self._place, now)
        job = session.execute(select(*describe.COLUMNS).where(jobs.c.id == event.data.get("jobId"))).first()
        if job is None:
            return messages.job_ended(event, None, {}, self._place, now)
        shown = describe.render(job, describe.transitions_of(session, job.id))
        rows = session.execute(select(tags.c.key, tags.c.value).where(tags.c.resource_arn == job.arn)).all()
        return messages.job_ended(event, shown, {row.key: row.value for row in rows}, self._place, now)


def _page(session: Session, target: Any, after: int, horizon: int) -> list[Happening]:
    rows = session.execute(
        select(events.c.id, events.c.at, events.c.kind, events.c.subject, events.c.message, events.c.data)
        .where(events.c.id > after, events.c.id <= horizon, events.c.kind.in_(kinds_of(target.kinds)))
        .order_by(events.c.id)
        .limit(_PAGE)
    ).all()
    return [Happening(*row) for row in rows]


def load(session: Session, target_id: str) -> Any:
    """The row of a target; None where there is none."""
    return session.execute(select(notification_targets).where(notification_targets.c.id == target_id)).first()
