"""Targets of notifications as people see and change them: add, list, remove, test.

Invariants: a URL is stored sealed, bound to its target, and leaves here only masked; a user reaches its own targets, an
administrator all; a new target gets what happens from then on.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any

from sqlalchemy import delete, func, insert, or_, select
from sqlalchemy.orm import Session

from trainshed_service.clock import Clock
from trainshed_service.events import EventLog, record
from trainshed_service.identity import IdentityService, Principal
from trainshed_service.identity.sealing import SealError, SecretBox
from trainshed_service.notifications import masking, progress
from trainshed_service.notifications.addresses import AddressRefused, resolve
from trainshed_service.notifications.apprise_process import AppriseChannel
from trainshed_service.notifications.channels import Channels, RealChannels
from trainshed_service.notifications.composing import Composer, load
from trainshed_service.notifications.delivery import Dispatcher, label_of
from trainshed_service.notifications.horizon import Horizon, highest
from trainshed_service.notifications.kinds import KINDS, check_kinds
from trainshed_service.notifications.messages import Place
from trainshed_service.notifications.outcome import Outcome
from trainshed_service.notifications.webhook import SCHEMES, check_webhook
from trainshed_service.settings import Settings
from trainshed_service.store import Database
from trainshed_service.store.tables import changed, notification_targets, users
from trainshed_service.wire.errors import ApiError, validation_error

MAX_URL = 2048
MAX_TARGETS = 20
"""Of one user, and of everybody."""
_TRIAL_SECONDS = 25.0
"""Less than the commands wait for an answer."""
_TRIALS_AT_ONCE = 4


class NotificationService:
    def __init__(
        self,
        *,
        database: Database,
        clock: Clock,
        settings: Settings,
        identity: IdentityService,
        events: EventLog,
        account_id: str,
        channels: Channels | None = None,
    ) -> None:
        self._database = database
        self._clock = clock
        self._settings = settings
        self._identity = identity
        self._events = events
        self._box = SecretBox(identity.derive_key("notification-targets"))
        self._channels = channels or RealChannels()
        self._horizon = Horizon(database)
        self._trials = asyncio.Semaphore(_TRIALS_AT_ONCE)
        place = Place(account_id, settings.region, settings.max_keep_alive_seconds)
        self._composer = Composer(identity, settings, place)
        self._dispatcher = Dispatcher(
            database=database,
            clock=clock,
            events=events,
            box=self._box,
            composer=self._composer,
            channels=self._channels,
            lease_seconds=settings.notify_lease_seconds,
            private_addresses=settings.notify_private_addresses,
        )

    def start(self) -> None:
        self._dispatcher.start()

    async def stop(self) -> None:
        await self._dispatcher.stop()

    async def add(
        self, principal: Principal, url: str, kinds: Sequence[str], *, user: str | None = None, mine: bool = False
    ) -> dict[str, Any]:
        """A new target: of `user`, of the caller (`mine`), else of everybody where an administrator asks, or of the
        caller. AccessDeniedException, ValidationException, LimitExceeded; a mail or chat URL is parsed, not tried."""
        _need_user(principal)
        if user is not None and mine:
            raise validation_error("Give one of 'user' and 'mine'.")
        if not principal.is_admin and user not in (None, principal.name):
            raise _denied(principal, "add notification targets of others")
        wanted = check_kinds(kinds)
        shown = await self._check(url, principal.is_admin)
        cursor = await self._horizon.settle()
        if cursor is None:
            cursor = await self._database.read(highest)
        target_id = secrets.token_hex(4)
        sealed = self._box.seal(label_of(target_id), url)
        now = self._clock.now()

        def store(session: Session) -> dict[str, Any]:
            owner: int | None = None
            if user is not None:
                owner = self._identity.users.find(session, user).id
            elif mine or not principal.is_admin:
                owner = principal.user_id
            _need_room(session, owner)
            session.execute(
                insert(notification_targets).values(
                    id=target_id,
                    user_id=owner,
                    url_sealed=sealed,
                    shown_url=shown,
                    by_admin=principal.is_admin,
                    kinds=wanted,
                    created_at=now,
                    cursor=cursor,
                    failures=0,
                )
            )
            _tell(session, principal, "notification-target.added", target_id, f"Notifications go to {shown}", now)
            return self._shown(session, target_id)

        answer = await self._database.write(store)
        self._events.published()
        self._dispatcher.poke()
        return answer

    async def list(self, principal: Principal) -> list[dict[str, Any]]:
        """The caller's targets, an administrator's all; the oldest first, without secrets."""
        _need_user(principal)

        def read(session: Session) -> list[dict[str, Any]]:
            query = _with_owner()
            if not principal.is_admin:
                query = query.where(notification_targets.c.user_id == principal.user_id)
            rows = session.execute(query.order_by(notification_targets.c.created_at, notification_targets.c.id)).all()
            return [_document(row, self._clock.now()) for row in rows]

        return await self._database.read(read)

    async def remove(self, principal: Principal, target_id: str) -> dict[str, Any]:
        """Take a target away; what it has not got yet, it does not get. NoSuchEntity."""
        _need_user(principal)
        now = self._clock.now()

        def drop(session: Session) -> dict[str, Any]:
            _reach(session, principal, target_id)
            answer = self._shown(session, target_id)
            changed(session, delete(notification_targets).where(notification_targets.c.id == target_id))
            text = f"No more notifications to {answer['url']}"
            _tell(session, principal, "notification-target.removed", target_id, text, now)
            return answer

        answer = await self._database.write(drop)
        self._events.published()
        return answer

    async def test(self, principal: Principal, target_id: str) -> dict[str, Any]:
        """Send a test message now: `delivered`, else `error`. Success ends the pause of a target that failed."""
        _need_user(principal)
        target = await self._database.read(lambda session: _reach(session, principal, target_id))
        try:
            url = self._box.open(label_of(target.id), target.url_sealed)
        except SealError as error:
            return {"id": target_id, "delivered": False, "error": str(error)}
        trusted = bool(target.by_admin)
        any_address = trusted or self._settings.notify_private_addresses
        channel = self._channels.open(url, any_address=any_address, trusted=trusted)
        try:
            async with self._trials, asyncio.timeout(_TRIAL_SECONDS):
                outcome = await channel.send(self._composer.test(target_id, self._clock.now()))
        except TimeoutError:
            outcome = Outcome(f"not delivered within {_TRIAL_SECONDS:g} s")
        finally:
            await channel.close()
        if outcome.error is None:
            await self._database.write(lambda session: progress.works(session, target_id))
            self._dispatcher.poke()
        return {"id": target_id, "delivered": outcome.error is None, "error": outcome.error}

    async def _check(self, url: str, trusted: bool) -> str:
        """The URL as it is shown. ValidationException, which does not repeat it, where nothing can be sent there."""
        if len(url) > MAX_URL or not url.isprintable() or any(letter.isspace() for letter in url):
            raise validation_error(f"'url' has at most {MAX_URL} printable characters without spaces (write %20).")
        any_address = trusted or self._settings.notify_private_addresses
        scheme = masking.scheme_of(url)
        if not scheme:
            raise validation_error(
                "'url' is a webhook (https://…) or a URL of apprise (mailto://…, slack://…), see docs/notifications.md."
            )
        if scheme in SCHEMES:
            await self._check_webhook(url, any_address)
            return masking.shown(url)
        channel = AppriseChannel(url, any_address=any_address, trusted=trusted, start_seconds=_TRIAL_SECONDS)
        try:
            async with self._trials:
                error = await channel.check()
            if error is not None:
                raise validation_error(f"'url': {error}.")
            return masking.shown(url, channel.recipients)
        finally:
            await channel.close()

    async def _check_webhook(self, url: str, any_address: bool) -> None:
        try:
            check_webhook(url)
            if not any_address:
                host, port = masking.place_of(url)
                await resolve(host, port, any_address=False)
        except AddressRefused as error:
            raise validation_error(f"'url': {error}.") from None
        except ValueError as error:
            raise validation_error(f"'url': {error}.") from None
        except OSError:
            pass  # a name that is not known yet: each delivery looks it up anew

    def _shown(self, session: Session, target_id: str) -> dict[str, Any]:
        row = session.execute(_with_owner().where(notification_targets.c.id == target_id)).one()
        return _document(row, self._clock.now())


def _with_owner() -> Any:
    return (
        select(notification_targets, users.c.name.label("owner"))
        .outerjoin(users, users.c.id == notification_targets.c.user_id)
        .where(or_(notification_targets.c.user_id.is_(None), users.c.deleted_at.is_(None)))
    )


def _document(row: Any, now: float) -> dict[str, Any]:
    return {
        "id": row.id,
        "url": row.shown_url,
        "user": row.owner,
        "on": list(row.kinds or KINDS),
        "createdAt": row.created_at,
        "status": progress.status_of(row, now),
        "deliveredAt": row.delivered_at,
        "failures": row.failures,
        "failingSince": row.failing_since,
        "nextTryAt": row.next_try_at,
        "lastError": row.last_error,
    }


def _reach(session: Session, principal: Principal, target_id: str) -> Any:
    """The row; one that the caller may not see is not there."""
    row = load(session, target_id)
    if row is None or not (principal.is_admin or row.user_id == principal.user_id):
        raise ApiError("NoSuchEntity", f"There is no notification target with the id {target_id[:64]}.", 404)
    return row


def _need_user(principal: Principal) -> None:
    if principal.kind != "user" or principal.user_id is None:
        raise _denied(principal, "use notification targets")


def _denied(principal: Principal, what: str) -> ApiError:
    return ApiError("AccessDeniedException", f"{principal.arn} may not {what}.", 403)


def _need_room(session: Session, owner: int | None) -> None:
    whose = notification_targets.c.user_id
    same = whose.is_(None) if owner is None else whose == owner
    count = session.scalar(select(func.count()).select_from(notification_targets).where(same)) or 0
    if count >= MAX_TARGETS:
        raise ApiError("LimitExceeded", f"There are at most {MAX_TARGETS} such targets; remove one first.", 409)


def _tell(session: Session, principal: Principal, kind: str, target_id: str, message: str, now: float) -> None:
    record(session, now, kind, f"notification-target/{target_id}", message, {"by": principal.name})
