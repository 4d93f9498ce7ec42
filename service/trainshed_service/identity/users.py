"""Users, their keys and their tokens, as administrators see and change them.

Invariants: an installation always has an administrator (its own user `admin` can be neither deleted nor demoted); a
user that left keeps its row, without any right and under a name that nobody can have, so that its jobs still say whose
they are and its number is never given to another; with the user end all its keys, tokens and sessions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from trainshed_service.clock import Clock
from trainshed_service.identity.sessions import SESSION_PREFIXES
from trainshed_service.store.models import AccessKey, BearerToken, User
from trainshed_service.store.tables import (
    bearer_tokens,
    changed,
    notification_targets,
    quotas,
    role_passes,
    usage,
)
from trainshed_service.wire.errors import ApiError, validation_error

ADMIN = "admin"
"""The user of the installation itself: its commands and its start act as this one."""
MAX_KEYS = 10
MAX_TOKENS = 50

_NAME = re.compile(r"[A-Za-z0-9_+=,.@-]{1,64}")
_TOKEN_NAME = re.compile(r"[A-Za-z0-9 _+=,.@-]{1,64}")
_LEFT = "~"
"""Stands in the name of a user that left; no user can be named so."""
_TOKEN_ID = 16


def shown_name(stored: str) -> str:
    """The name of a job's user for people."""
    name, mark, _ = stored.partition(_LEFT)
    return f"{name} (deleted)" if mark else name


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise validation_error(f"'{name[:100]}' is no user name: 1 to 64 of the characters A-Z a-z 0-9 _ + = , . @ -")


class Users:
    """All functions run inside a transaction. NoSuchEntity (404) for users, keys and tokens that are not there."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    # -- users ---------------------------------------------------------------------------------------------------

    def create(self, session: Session, name: str, *, is_admin: bool = False) -> User:
        check_name(name)
        user = User(name=name, is_admin=is_admin, created_at=self._clock.now(), restricted=False)
        try:
            with session.begin_nested():
                session.add(user)
                session.flush()
        except IntegrityError:
            raise ApiError("EntityAlreadyExists", f"User with name {name} already exists.", 409) from None
        return user

    def find(self, session: Session, name: str) -> User:
        user = session.scalar(select(User).where(User.name == name, User.deleted_at.is_(None)))
        if user is None:
            raise ApiError("NoSuchEntity", f"The user with name {name[:100]} cannot be found.", 404)
        return user

    def all(self, session: Session) -> list[User]:
        return list(session.scalars(select(User).where(User.deleted_at.is_(None)).order_by(User.name)))

    def set_admin(self, session: Session, user: User, is_admin: bool) -> None:
        if user.name == ADMIN and not is_admin:
            raise _conflict(f"The user {ADMIN} is the installation's own administrator and stays one.")
        user.is_admin = is_admin
        session.flush()

    def leave(self, session: Session, name: str) -> list[str]:
        """Delete the user; the ids of the keys that ended with it. Jobs of the user go on and keep its name."""
        user = self.find(session, name)
        if user.name == ADMIN:
            raise _conflict(f"The user {ADMIN} is the installation's own administrator; it cannot be deleted.")
        left = f"{_LEFT}{user.id}"
        keys = list(session.scalars(select(AccessKey.id).where(AccessKey.user_id == user.id)))
        session.execute(delete(BearerToken).where(BearerToken.user_id == user.id))
        session.execute(update(AccessKey).where(AccessKey.user_id == user.id).values(active=False))
        session.execute(delete(role_passes).where(role_passes.c.user_id == user.id))
        session.execute(delete(usage).where(usage.c.user_id == user.id))
        session.execute(delete(notification_targets).where(notification_targets.c.user_id == user.id))
        session.execute(delete(quotas).where(quotas.c.subject_kind == "user", quotas.c.subject == user.name))
        user.name = user.name[: 64 - len(left)] + left
        user.is_admin, user.restricted, user.deleted_at = False, True, self._clock.now()
        session.flush()
        return keys

    # -- which roles ---------------------------------------------------------------------------------------------

    def roles_of(self, session: Session, user_id: int) -> list[str]:
        """ARNs of the roles on the user's list."""
        query = select(role_passes.c.role_arn).where(role_passes.c.user_id == user_id)
        return list(session.scalars(query.order_by(role_passes.c.role_arn)))

    def allow(self, session: Session, user: User, arns: Iterable[str]) -> None:
        """Put (existing) roles on the user's list; from now on the list holds."""
        here = set(self.roles_of(session, user.id))
        now = self._clock.now()
        for arn in dict.fromkeys(arns):
            if arn not in here:
                session.execute(insert(role_passes).values(user_id=user.id, role_arn=arn, created_at=now))
        self.restrict(session, user, True)

    def deny(self, session: Session, user: User, arns: Iterable[str]) -> None:
        """Take roles off the user's list; the list holds also when it is empty."""
        wanted = list(arns)
        session.execute(delete(role_passes).where(role_passes.c.user_id == user.id, role_passes.c.role_arn.in_(wanted)))
        self.restrict(session, user, True)

    def restrict(self, session: Session, user: User, restricted: bool) -> None:
        """Whether the list holds. Without: any role where the installation's `roles` are open, else still the list."""
        user.restricted = restricted
        session.flush()

    # -- keys ----------------------------------------------------------------------------------------------------

    def keys_of(self, session: Session, user_id: int) -> list[dict[str, Any]]:
        """Without their secrets, oldest first."""
        rows = session.execute(
            select(AccessKey.id, AccessKey.active, AccessKey.created_at)
            .where(AccessKey.user_id == user_id)
            .order_by(AccessKey.created_at, AccessKey.id)
        )
        return [{"accessKeyId": row.id, "active": bool(row.active), "createdAt": row.created_at} for row in rows]

    def need_room_for_key(self, session: Session, user_id: int) -> None:
        count = session.scalar(select(func.count()).select_from(AccessKey).where(AccessKey.user_id == user_id)) or 0
        if count >= MAX_KEYS:
            raise ApiError("LimitExceeded", f"A user has at most {MAX_KEYS} access keys; delete one first.", 409)

    def owner_of_key(self, session: Session, access_key_id: str) -> User:
        """The user whose key it is. Keys of jobs are nobody's."""
        user = session.scalar(
            select(User)
            .join(AccessKey, AccessKey.user_id == User.id)
            .where(AccessKey.id == access_key_id, User.deleted_at.is_(None))
        )
        if user is None:
            raise ApiError(
                "NoSuchEntity",
                f"The Access Key with id {access_key_id[:128]} cannot be found among those of users.",
                404,
            )
        return user

    # -- tokens --------------------------------------------------------------------------------------------------

    def tokens_of(self, session: Session, user_id: int) -> list[dict[str, Any]]:
        """Bearer tokens for REST (not the sessions of browsers), oldest first; `id` names one without telling it."""
        rows = session.execute(
            select(BearerToken.token_hash, BearerToken.name, BearerToken.created_at, BearerToken.expires_at)
            .where(BearerToken.user_id == user_id, *_is_token())
            .order_by(BearerToken.created_at)
        )
        return [
            {
                "id": row.token_hash[:_TOKEN_ID],
                "name": row.name,
                "createdAt": row.created_at,
                "expiresAt": row.expires_at,
            }
            for row in rows
        ]

    def check_new_token(self, session: Session, user_id: int, name: str) -> None:
        if not _TOKEN_NAME.fullmatch(name):
            raise validation_error("The name of a token has 1 to 64 of the characters A-Z a-z 0-9 space _ + = , . @ -")
        if len(self.tokens_of(session, user_id)) >= MAX_TOKENS:
            raise ApiError("LimitExceeded", f"A user has at most {MAX_TOKENS} tokens; revoke one first.", 409)

    def revoke_token(self, session: Session, token_id: str) -> str:
        """End the token with this id (as `tokens_of` gives it); its whole hash."""
        found = session.scalar(
            select(BearerToken.token_hash).where(
                func.substr(BearerToken.token_hash, 1, _TOKEN_ID) == token_id, *_is_token()
            )
        )
        if found is None or changed(session, delete(bearer_tokens).where(bearer_tokens.c.token_hash == found)) == 0:
            raise ApiError("NoSuchEntity", f"There is no token with the id {token_id[:64]}.", 404)
        return found


def _is_token() -> list[Any]:
    return [~BearerToken.name.startswith(prefix) for prefix in SESSION_PREFIXES]


def _conflict(message: str) -> ApiError:
    return ApiError("DeleteConflict", message, 409)
