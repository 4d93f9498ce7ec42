"""Sessions and the links that open them."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainshed_service.clock import ManualClock
from trainshed_service.identity import LINK_SECONDS, SESSION_SECONDS, IdentityService, key_origin, token_origin
from trainshed_service.store.models import BearerToken


def admin(identity: IdentityService, session: Session) -> tuple[int, str]:
    """(user id, access key id)."""
    made = identity.bootstrap(session)
    record = identity.lookup_key(session, made.admin.access_key_id)
    assert record is not None and record.principal.user_id is not None
    return record.principal.user_id, made.admin.access_key_id


def test_a_session_works_until_it_is_closed(identity: IdentityService, session: Session) -> None:
    user_id, key = admin(identity, session)
    token = identity.sessions.open(session, user_id, key_origin(key))
    principal = identity.sessions.authenticate(session, token)
    assert principal is not None and principal.name == "admin" and principal.kind == "user"
    identity.sessions.close(session, token)
    assert identity.sessions.authenticate(session, token) is None


def test_a_session_runs_out_and_leaves_the_table(
    identity: IdentityService, session: Session, clock: ManualClock
) -> None:
    user_id, key = admin(identity, session)
    token = identity.sessions.open(session, user_id, key)
    clock.advance(SESSION_SECONDS - 1)
    assert identity.sessions.authenticate(session, token) is not None
    clock.advance(1)
    assert identity.sessions.authenticate(session, token) is None
    api_token = identity.create_bearer_token(session, user_id, "api")
    identity.sessions.open(session, user_id, key)
    assert len(session.scalars(select(BearerToken)).all()) == 2
    assert identity.authenticate_bearer(session, api_token) is not None


def test_sessions_links_and_bearer_tokens_are_not_one_another(identity: IdentityService, session: Session) -> None:
    user_id, key = admin(identity, session)
    opened = identity.sessions.open(session, user_id, key)
    link = identity.sessions.issue_link(session, user_id, key)
    bearer = identity.create_bearer_token(session, user_id, "api")
    for token in (opened, link):
        assert identity.authenticate_bearer(session, token) is None
    for token in (link, bearer, "", "x" * 10_000, "\udc80"):
        assert identity.sessions.authenticate(session, token) is None
    for token in (opened, bearer):
        assert identity.sessions.redeem_link(session, token) is None
    stored = " ".join(f"{row.token_hash} {row.name}" for row in session.scalars(select(BearerToken)))
    assert not any(token in stored for token in (opened, link, bearer))


def test_a_link_opens_one_session(identity: IdentityService, session: Session) -> None:
    user_id, key = admin(identity, session)
    link = identity.sessions.issue_link(session, user_id, key)
    opened = identity.sessions.redeem_link(session, link)
    assert opened is not None and identity.sessions.authenticate(session, opened) is not None
    assert identity.sessions.redeem_link(session, link) is None


def test_a_link_runs_out(identity: IdentityService, session: Session, clock: ManualClock) -> None:
    user_id, key = admin(identity, session)
    link = identity.sessions.issue_link(session, user_id, key)
    clock.advance(LINK_SECONDS)
    assert identity.sessions.redeem_link(session, link) is None


def test_what_a_key_opened_ends_with_it(identity: IdentityService, session: Session) -> None:
    user_id, key = admin(identity, session)
    other = identity.create_access_key(session, user_id).access_key_id
    link = identity.sessions.issue_link(session, user_id, key_origin(key))
    opened = identity.sessions.redeem_link(session, link)
    unused = identity.sessions.issue_link(session, user_id, key_origin(key))
    kept = identity.sessions.open(session, user_id, key_origin(other))
    assert opened is not None
    identity.deactivate_access_key(session, key)
    assert identity.sessions.authenticate(session, opened) is None
    assert identity.sessions.redeem_link(session, unused) is None
    assert identity.sessions.authenticate(session, kept) is not None


def test_what_a_token_opened_ends_with_it(identity: IdentityService, session: Session) -> None:
    user_id, _ = admin(identity, session)
    bearer = identity.create_bearer_token(session, user_id, "api")
    opened = identity.sessions.open(session, user_id, token_origin(bearer))
    assert bearer not in token_origin(bearer)
    identity.revoke_bearer_token(session, bearer)
    assert identity.sessions.authenticate(session, opened) is None
