"""Delivery: each target gets its events in order, at least once, whatever becomes of this process or the other targets.

Invariants:

* The cursor in the target's row moves after the delivery; a process that is killed between the two delivers again.
* One task per target: one that hangs or fails delays no other; helper processes are few at once, and targets that
  failed wait for others that did. All that is in memory here can be lost at any line.
* Nothing is sent by a process that does not hold the lease.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import Any

import structlog
from sqlalchemy import exists, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from trainshed_service.clock import Clock
from trainshed_service.events import EventLog
from trainshed_service.identity.sealing import SealError, SecretBox
from trainshed_service.notifications import progress
from trainshed_service.notifications.channels import Channel, Channels
from trainshed_service.notifications.composing import Composer, Found, load
from trainshed_service.notifications.horizon import Horizon
from trainshed_service.notifications.kinds import DROPPED, KINDS
from trainshed_service.notifications.lease import Lease
from trainshed_service.notifications.outcome import Outcome
from trainshed_service.store import Database
from trainshed_service.store.tables import events, notification_targets

_log = structlog.get_logger(__name__)
POLL_SECONDS = 5.0
"""How late a target or an event of another process is seen."""
_RETRY_SECONDS = 1.0
_SHORTEST_PAUSE = 0.1
_HEAVY_AT_ONCE = 4
_HEAVY_IN_A_ROW = 20
_WORTH_STORING = 500
"""A cursor that passed so many events that concern nobody is stored, so that a restart does not read them again."""


class Dispatcher:
    def __init__(
        self,
        *,
        database: Database,
        clock: Clock,
        events: EventLog,
        box: SecretBox,
        composer: Composer,
        channels: Channels,
        lease_seconds: float,
        private_addresses: bool,
    ) -> None:
        self._database = database
        self._clock = clock
        self._events = events
        self._box = box
        self._composer = composer
        self._channels = channels
        self._private_addresses = private_addresses
        self._lease = Lease(database, clock, lease_seconds)
        self._horizon = Horizon(database)
        self._seen = 0
        self._positions: dict[str, int] = {}
        self._resting: dict[str, float] = {}
        self._workers: dict[str, asyncio.Task[None]] = {}
        self._places_of_sound = asyncio.Semaphore(_HEAVY_AT_ONCE)
        self._places_of_failing = asyncio.Semaphore(_HEAVY_AT_ONCE)
        self._poked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """End what is under way; it is done again by the next process."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        await self._stop_workers()
        try:
            await self._lease.release()
        except SQLAlchemyError:
            _log.exception("notifications.lease_not_released")

    def poke(self) -> None:
        """Targets have changed: look at once."""
        self._poked.set()

    async def _run(self) -> None:
        while True:
            self._poked.clear()
            wake = self._events.next_published()
            busy, pause = True, _RETRY_SECONDS
            try:
                busy, pause = await self._round()
            except Exception:  # noqa: BLE001 - whatever it is: it is in the log, and delivery goes on
                _log.exception("notifications.round_failed", retry_seconds=_RETRY_SECONDS)
            await self._wait([self._poked, wake] if busy else [self._poked], pause)

    async def _round(self) -> tuple[bool, float]:
        """Start what is due. Whether there are targets, and for how long (seconds) there is nothing else to do."""
        targets = await self._database.read(_all_targets)
        if not targets:
            await self._lease.release()
            self._positions.clear()
            return False, POLL_SECONDS
        if not await self._lease.hold():
            await self._stop_workers()
            return False, min(POLL_SECONDS, self._lease.seconds / 3)
        horizon = await self._horizon.settle()
        if horizon is None:
            return True, _RETRY_SECONDS
        self._forget_all_but({target.id for target in targets})
        news = await self._database.read(lambda session: _has_news(session, self._seen, horizon))
        now = self._clock.now()
        next_at = now + min(POLL_SECONDS, self._lease.seconds / 3)
        for target in targets:
            if target.id in self._workers:
                continue
            rest = max(target.next_try_at or 0.0, self._resting.get(target.id, 0.0))
            if rest > now:
                next_at = min(next_at, rest)
                continue
            position = max(target.cursor, self._positions.get(target.id, 0))
            if position >= horizon:
                continue
            if not news and position >= self._seen:
                await self._pass_over(target, horizon)
                continue
            self._start_worker(target.id, position, horizon)
        self._seen = horizon
        return True, max(_SHORTEST_PAUSE, next_at - now)

    def _start_worker(self, target_id: str, position: int, horizon: int) -> None:
        task = asyncio.get_running_loop().create_task(self._work(target_id, position, horizon))
        self._workers[target_id] = task
        task.add_done_callback(partial(self._worker_done, target_id))

    def _worker_done(self, target_id: str, task: asyncio.Task[None]) -> None:
        self._workers.pop(target_id, None)
        self._poked.set()
        if not task.cancelled() and task.exception() is not None:  # the database
            self._resting[target_id] = self._clock.now() + _RETRY_SECONDS
            _log.error("notifications.target_not_served", target=target_id, exc_info=task.exception())

    async def _stop_workers(self) -> None:
        tasks = list(self._workers.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, target_id: str, position: int, horizon: int) -> None:
        """Deliver to one target until nothing is left, it fails, or it is gone."""
        try:
            await self._give_up_old(target_id, horizon)
            await self._serve(target_id, position, horizon)
        except SQLAlchemyError:
            raise
        except Exception:  # noqa: BLE001 - a fault of ours with this target: it is shown there, the others go on
            _log.exception("notifications.target_failed", target=target_id)
            now, fault = self._clock.now(), Outcome("an internal error; the service's log tells more")
            await self._database.write(lambda session: progress.failed(session, target_id, fault, now))

    async def _serve(self, target_id: str, position: int, horizon: int) -> None:
        async with contextlib.AsyncExitStack() as held:
            channel: Channel | Outcome | None = None
            in_a_row = 0
            while self._lease.held():
                now = self._clock.now()
                target, found = await self._database.read(
                    lambda session: self._next(session, target_id, position, horizon, now)  # noqa: B023
                )
                if target is None or (target.next_try_at or 0.0) > now:  # or it has failed since the list was read
                    return
                if found is None:
                    await self._pass_over(target, horizon)
                    return
                if channel is None:
                    channel = self._open(target)
                    if not isinstance(channel, Outcome):
                        held.push_async_callback(channel.close)
                        if channel.heavy:
                            await held.enter_async_context(self._places(target))
                            continue  # time has passed
                elif not isinstance(channel, Outcome) and channel.heavy and in_a_row == _HEAVY_IN_A_ROW:
                    return  # others wait for the place; this one comes again
                outcome = channel if isinstance(channel, Outcome) else await channel.send(found.message)
                in_a_row += 1
                if not await self._note(target_id, found, outcome):
                    return
                position = found.event.id
                self._positions[target_id] = position

    def _places(self, target: Any) -> asyncio.Semaphore:
        """Targets whose last delivery failed have places of their own: they keep no other waiting."""
        return self._places_of_failing if target.failures else self._places_of_sound

    async def _pass_over(self, target: Any, horizon: int) -> None:
        """Nothing up to the horizon is the target's business."""
        self._positions[target.id] = horizon
        if horizon - target.cursor >= _WORTH_STORING:
            await self._database.write(lambda session: progress.looked_at(session, target.id, horizon))

    def _open(self, target: Any) -> Channel | Outcome:
        """A channel, or why there is none."""
        try:
            url = self._box.open(label_of(target.id), target.url_sealed)
        except SealError as error:
            return Outcome(str(error))
        trusted = bool(target.by_admin)
        return self._channels.open(url, any_address=trusted or self._private_addresses, trusted=trusted)

    async def _note(self, target_id: str, found: Found, outcome: Outcome) -> bool:
        """Store what became of a delivery; whether to go on."""
        now = self._clock.now()
        if outcome.error is None:
            return await self._database.write(
                lambda session: progress.delivered(session, target_id, found.event.id, now)
            )
        again = await self._database.write(lambda session: progress.failed(session, target_id, outcome, now))
        _log.warning(
            "notifications.not_delivered",
            target=target_id,
            event_id=found.event.id,
            error=outcome.error,
            again_at=again,
        )
        return False

    async def _give_up_old(self, target_id: str, horizon: int) -> None:
        now = self._clock.now()
        target = await self._database.read(lambda session: load(session, target_id))
        if target is None or progress.status_of(target, now) != "failing":
            return
        count = await self._database.write(
            lambda session: progress.give_up_old(session, self._composer, target_id, horizon, now)
        )
        if count:
            self._events.published()

    def _forget_all_but(self, target_ids: set[str]) -> None:
        for memory in (self._positions, self._resting):
            for target_id in memory.keys() - target_ids:
                del memory[target_id]

    def _next(
        self, session: Session, target_id: str, position: int, horizon: int, now: float
    ) -> tuple[Any, Found | None]:
        target = load(session, target_id)
        if target is None:
            return None, None
        return target, self._composer.next(session, target, max(position, int(target.cursor)), horizon, now)

    async def _wait(self, events: list[asyncio.Event], seconds: float) -> None:
        waiting = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if any(task.done() for task in waiting):
                await asyncio.sleep(_SHORTEST_PAUSE)  # many changes at once: one look
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)


def label_of(target_id: str) -> str:
    """What the sealed URL is bound to."""
    return f"notification-target/{target_id}"


def _all_targets(session: Session) -> list[Any]:
    columns = notification_targets.c
    return list(session.execute(select(columns.id, columns.cursor, columns.next_try_at).order_by(columns.created_at)))


def _has_news(session: Session, after: int, horizon: int) -> bool:
    here = select(events.c.id).where(events.c.id > after, events.c.id <= horizon, events.c.kind.in_((*KINDS, DROPPED)))
    return bool(session.scalar(select(exists(here))))
