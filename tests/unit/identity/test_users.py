"""Users that come, change and leave; names, lists of roles, tokens."""

from __future__ import annotations

import pytest
from sqlalchemy.orm import Session

from trainshed_service.identity import IdentityService
from trainshed_service.identity.users import shown_name
from trainshed_service.store.models import User
from trainshed_service.wire.errors import ApiError


@pytest.fixture
def anna(identity: IdentityService, session: Session) -> User:
    identity.bootstrap(session)
    return identity.create_user(session, "anna")


def test_a_user_that_left_has_nothing_and_its_name_is_free(
    identity: IdentityService, session: Session, anna: User
) -> None:
    key = identity.create_access_key(session, anna.id)
    token = identity.create_bearer_token(session, anna.id, "t")
    cookie = identity.sessions.open(session, anna.id, "origin")
    identity.delete_user(session, "anna")
    assert identity.authenticate_bearer(session, token) is None
    assert identity.sessions.authenticate(session, cookie) is None
    assert identity.lookup_key(session, key.access_key_id) is None
    assert identity.user_principal(session, "anna") is None
    again = identity.create_user(session, "anna")
    assert again.id != anna.id
    assert [user.name for user in identity.users.all(session)] == ["admin", "anna"]
    with pytest.raises(ApiError, match="cannot be found among those of users"):
        identity.users.owner_of_key(session, key.access_key_id)


def test_the_longest_name_leaves_too(identity: IdentityService, session: Session, anna: User) -> None:
    name = "x" * 64
    user = identity.create_user(session, name)
    identity.delete_user(session, name)
    session.refresh(user)
    assert len(user.name) == 64
    assert shown_name(user.name) == "x" * (64 - len(f"~{user.id}")) + " (deleted)"


@pytest.mark.parametrize("name", ["", "a b", "a~1", "ä", "a/b", "x" * 65, "a\n"])
def test_names(identity: IdentityService, session: Session, anna: User, name: str) -> None:
    with pytest.raises(ApiError) as caught:
        identity.create_user(session, name)
    assert caught.value.code == "ValidationException"


def test_a_list_holds_once_there_was_one(identity: IdentityService, session: Session, anna: User) -> None:
    account = identity.account_id(session)
    role = identity.create_role(session, "blue")
    assert role.arn == f"arn:aws:iam::{account}:role/blue"
    assert anna.restricted is False
    identity.users.allow(session, anna, [role.arn, role.arn])
    identity.users.allow(session, anna, [role.arn])
    assert identity.users.roles_of(session, anna.id) == [role.arn]
    identity.users.deny(session, anna, [role.arn])
    session.refresh(anna)
    assert (identity.users.roles_of(session, anna.id), anna.restricted) == ([], True)


def test_a_role_that_two_accounts_have_is_named_by_its_arn(
    identity: IdentityService, session: Session, anna: User
) -> None:
    own = identity.create_role(session, "shared")
    other = identity.create_role(session, "arn:aws:iam::999988887777:role/shared")
    with pytest.raises(ApiError, match="Several roles are called shared"):
        identity.resolve_role(session, "shared")
    identity.delete_role(session, own.arn)
    assert identity.resolve_role(session, "shared").arn == other.arn
    with pytest.raises(ApiError, match="already exists"):
        identity.create_role(session, other.arn)


def test_tokens_are_named_by_an_id_that_is_no_token(identity: IdentityService, session: Session, anna: User) -> None:
    token = identity.create_bearer_token(session, anna.id, "laptop")
    identity.sessions.open(session, anna.id, "origin")
    (shown,) = identity.users.tokens_of(session, anna.id)  # the session is not among them
    assert shown["name"] == "laptop"
    assert identity.authenticate_bearer(session, shown["id"]) is None
    identity.revoke_token(session, shown["id"])
    assert identity.authenticate_bearer(session, token) is None
    with pytest.raises(ApiError, match="There is no token"):
        identity.revoke_token(session, shown["id"])
