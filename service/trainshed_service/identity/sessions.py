"""Sessions of people in a browser, and the links that open one. Both are rows of `bearer_tokens` with an end.

Invariants: only hashes are stored, in a domain of their own, so that neither a session nor a link works as a bearer
token and no bearer token as a session; a link opens one session at most, whoever is faster; a session ends with the
key or token that it was opened with.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from trainshed_service.clock import Clock
from trainshed_service.identity.principal import Principal
from trainshed_service.store.models import BearerToken
from trainshed_service.store.tables import changed

SESSION_SECONDS = 12 * 3600.0
LINK_SECONDS = 300.0
SESSION_PREFIXES = ("session:", "link:")
"""How the names of rows begin that are no bearer tokens."""
_OWN = SESSION_PREFIXES


class Sessions:
    """`principal_of` gives the user of an id; null where there is none. All functions run inside a transaction."""

    def __init__(self, clock: Clock, principal_of: Callable[[Session, int], Principal | None]) -> None:
        self._clock = clock
        self._principal_of = principal_of

    def open(self, session: Session, user_id: int, origin: str) -> str:
        """A new session for the user; its token, which is shown once. `origin` names the credential behind it."""
        self._prune(session)
        return self._issue(session, "session:", user_id, origin, SESSION_SECONDS)

    def authenticate(self, session: Session, token: str) -> Principal | None:
        """The user of a session that has neither ended nor run out."""
        row = session.get(BearerToken, _digest("session:", token))
        if row is None or row.expires_at is None or row.expires_at <= self._clock.now():
            return None
        return self._principal_of(session, row.user_id)

    def close(self, session: Session, token: str) -> None:
        """The session works no more, in any browser."""
        session.execute(delete(BearerToken).where(BearerToken.token_hash == _digest("session:", token)))

    def issue_link(self, session: Session, user_id: int, origin: str) -> str:
        """The token of a link that opens one session within `LINK_SECONDS`."""
        self._prune(session)
        return self._issue(session, "link:", user_id, origin, LINK_SECONDS)

    def redeem_link(self, session: Session, token: str) -> str | None:
        """The token of the session that the link opens; null where it was used, ran out or never was."""
        digest = _digest("link:", token)
        row = session.execute(
            select(BearerToken.user_id, BearerToken.name, BearerToken.expires_at).where(
                BearerToken.token_hash == digest
            )
        ).first()
        if row is None or changed(session, delete(BearerToken).where(BearerToken.token_hash == digest)) != 1:
            return None
        if row.expires_at is None or row.expires_at <= self._clock.now():
            return None
        return self.open(session, row.user_id, row.name.removeprefix("link:"))

    def end_of_origin(self, session: Session, origin: str) -> None:
        """The credential was revoked: what it opened ends."""
        session.execute(delete(BearerToken).where(BearerToken.name.in_([prefix + origin for prefix in _OWN])))

    def _issue(self, session: Session, prefix: str, user_id: int, origin: str, seconds: float) -> str:
        token = secrets.token_urlsafe(32)
        now = self._clock.now()
        session.add(
            BearerToken(
                token_hash=_digest(prefix, token),
                user_id=user_id,
                name=(prefix + origin)[:64],
                created_at=now,
                expires_at=now + seconds,
            )
        )
        session.flush()
        return token

    def _prune(self, session: Session) -> None:
        """Ended sessions and links leave the table when the next one is made."""
        ours = [BearerToken.name.startswith(prefix) for prefix in _OWN]
        over = BearerToken.expires_at <= self._clock.now()
        session.execute(delete(BearerToken).where(over, ours[0] | ours[1]))


def key_origin(access_key_id: str) -> str:
    return access_key_id[:40]


def token_origin(bearer_token: str) -> str:
    """Names a bearer token without telling it."""
    return origin_of_hash(hashlib.sha256(bearer_token.encode("utf-8", "surrogateescape")).hexdigest())


def origin_of_hash(token_hash: str) -> str:
    """`token_origin` of the token that is stored under this hash."""
    return "token-" + hashlib.sha256(b"origin:" + token_hash.encode()).hexdigest()[:32]


def _digest(prefix: str, token: str) -> str:
    return hashlib.sha256((prefix + token).encode("utf-8", "surrogateescape")).hexdigest()
