"""Bootstrap, keys, roles and tokens over a real database."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from trainshed_service.clock import ManualClock
from trainshed_service.identity import DEFAULT_ROLE, IdentityService, PolicyError, job_policy
from trainshed_service.identity.sealing import SealError
from trainshed_service.store import Database
from trainshed_service.store.models import AccessKey, Base, BearerToken, Meta
from trainshed_service.wire.errors import ApiError
from trainshed_service.wire.models import service_model
from trainshed_service.wire.patterns import compile_pattern

POLICY = job_policy(read=[("data", "in/")], write=[("data", "out/job/")])


def test_bootstrap_makes_a_usable_installation(identity: IdentityService, session: Session) -> None:
    made = identity.bootstrap(session)
    assert re.fullmatch(r"[1-9]\d{11}", made.account_id)
    assert made.role_arn == f"arn:aws:iam::{made.account_id}:role/service-role/{DEFAULT_ROLE}"
    pattern = service_model("sagemaker").shape_for("RoleArn").metadata["pattern"]
    assert compile_pattern(pattern).fullmatch(made.role_arn)
    record = identity.lookup_key(session, made.admin.access_key_id)
    assert record is not None and record.active
    assert record.secret == made.admin.secret_access_key
    assert record.principal.is_admin
    assert record.principal.arn == f"arn:aws:sts::{made.account_id}:assumed-role/{DEFAULT_ROLE}/admin"
    assert identity.check_enrollment_token(session, made.enrollment_token)
    assert not identity.check_enrollment_token(session, made.enrollment_token + "x")
    assert not identity.check_enrollment_token(session, "é")


def test_bootstrap_again_changes_nothing(identity: IdentityService, session: Session, tmp_path: Path) -> None:
    first = identity.bootstrap(session)
    after_restart = IdentityService(tmp_path / "home", ManualClock())
    assert after_restart.bootstrap(session) == first
    assert after_restart.bootstrap(session, "999999999999") == first
    assert after_restart.derive_key("a") == identity.derive_key("a") != identity.derive_key("b")


def test_bootstrap_with_a_given_account(identity: IdentityService, session: Session) -> None:
    assert identity.bootstrap(session, "123456789012").account_id == "123456789012"


def test_an_admin_key_that_was_taken_away_is_replaced(identity: IdentityService, session: Session) -> None:
    first = identity.bootstrap(session)
    identity.deactivate_access_key(session, first.admin.access_key_id)
    second = identity.bootstrap(session)
    assert second.admin.access_key_id != first.admin.access_key_id
    old = identity.lookup_key(session, first.admin.access_key_id)
    assert old is not None and not old.active


def test_no_secret_is_stored_in_the_clear(identity: IdentityService, session: Session) -> None:
    made = identity.bootstrap(session)
    job = identity.issue_job_key(session, "attempt-1", POLICY, 2_000_000_000.0)
    token = identity.create_bearer_token(session, 1, "cli")
    session.commit()
    stored = repr([(row.secret_sealed, row.session_token_hash) for row in session.scalars(select(AccessKey))])
    stored += repr([row.value for row in session.scalars(select(Meta))])
    stored += repr([row.token_hash for row in session.scalars(select(BearerToken))])
    secrets = (made.admin.secret_access_key, made.enrollment_token, job.secret_access_key, job.session_token, token)
    for secret in secrets:
        assert secret and secret not in stored
        assert secret not in repr(made) + repr(job) + repr(identity.lookup_key(session, job.access_key_id))


def test_a_sealed_secret_opens_in_its_own_row_only(identity: IdentityService, session: Session) -> None:
    made = identity.bootstrap(session)
    other = identity.create_access_key(session, 1)
    stolen = session.get(AccessKey, made.admin.access_key_id)
    assert stolen is not None
    session.execute(
        update(AccessKey).where(AccessKey.id == other.access_key_id).values(secret_sealed=stolen.secret_sealed)
    )
    session.expire_all()
    with pytest.raises(SealError, match=other.access_key_id):
        identity.lookup_key(session, other.access_key_id)


def test_another_key_file_opens_nothing(identity: IdentityService, session: Session, tmp_path: Path) -> None:
    made = identity.bootstrap(session)
    stranger = IdentityService(tmp_path / "elsewhere", ManualClock())
    with pytest.raises(SealError, match=r"secret\.key"):
        stranger.lookup_key(session, made.admin.access_key_id)


def test_job_keys(identity: IdentityService, session: Session) -> None:
    identity.bootstrap(session)
    one = identity.issue_job_key(session, "attempt-1", POLICY, 2_000_000_000.0)
    two = identity.issue_job_key(session, "attempt-2", POLICY, 2_000_000_000.0)
    record = identity.lookup_key(session, one.access_key_id)
    assert record is not None
    assert record.principal.kind == "job" and record.principal.attempt_id == "attempt-1"
    assert not record.principal.is_admin
    assert record.principal.policy == POLICY == record.policy
    assert record.expires_at == 2_000_000_000.0
    assert one.session_token is not None
    assert record.session_token_hash == hashlib.sha256(one.session_token.encode()).hexdigest()
    identity.revoke_job_keys(session, "attempt-1")
    assert identity.lookup_key(session, one.access_key_id) is None
    assert identity.lookup_key(session, two.access_key_id) is not None


def test_a_policy_that_we_do_not_understand_is_never_issued(identity: IdentityService, session: Session) -> None:
    identity.bootstrap(session)
    with pytest.raises(PolicyError):
        identity.issue_job_key(session, "a", {"Statement": [{"Effect": "Allow", "NotAction": "s3:*"}]}, 1.0)


def test_users_and_names(identity: IdentityService, session: Session) -> None:
    account = identity.bootstrap(session).account_id
    user = identity.create_user(session, "ada")
    made = identity.create_access_key(session, user.id)
    record = identity.lookup_key(session, made.access_key_id)
    assert record is not None
    assert record.principal.arn == f"arn:aws:iam::{account}:user/ada"
    assert not record.principal.is_admin
    with pytest.raises(ApiError, match="already exists"):
        identity.create_user(session, "ada")
    assert identity.lookup_key(session, "AKIANOBODY") is None


def test_roles(identity: IdentityService, session: Session) -> None:
    account = identity.bootstrap(session).account_id
    arn = f"arn:aws:iam::{account}:role/team/blue"
    assert identity.ensure_role(session, arn).name == "blue"
    assert identity.ensure_role(session, arn).arn == arn
    found = identity.get_role(session, "blue")
    assert found is not None and found.arn == arn
    assert identity.find_role(session, arn + "x") is None
    assert [role.name for role in identity.list_roles(session)] == [DEFAULT_ROLE, "blue"]
    with pytest.raises(ApiError, match="already exists"):
        identity.ensure_role(session, f"arn:aws:iam::{account}:role/blue")
    with pytest.raises(ApiError, match="not the ARN of a role"):
        identity.ensure_role(session, "arn:aws:iam::1:user/blue")


def test_bearer_tokens(identity: IdentityService, session: Session, clock: ManualClock) -> None:
    identity.bootstrap(session)
    lasting = identity.create_bearer_token(session, 1, "cli")
    brief = identity.create_bearer_token(session, 1, "page", expires_at=clock.now() + 60)
    for token in (lasting, brief):
        principal = identity.authenticate_bearer(session, token)
        assert principal is not None and principal.name == "admin"
    clock.advance(60)
    assert identity.authenticate_bearer(session, brief) is None
    assert identity.authenticate_bearer(session, lasting) is not None
    identity.revoke_bearer_token(session, lasting)
    assert identity.authenticate_bearer(session, lasting) is None
    assert identity.authenticate_bearer(session, "ts_made-up\udcff") is None


def test_an_installation_without_account_says_so(identity: IdentityService, session: Session) -> None:
    with pytest.raises(RuntimeError, match="trainshed up"):
        identity.account_id(session)


async def test_the_cache_asks_rarely_and_forgets_soon(tmp_path: Path, clock: ManualClock) -> None:
    database = Database(f"sqlite:///{tmp_path / 'a.sqlite3'}")
    try:
        Base.metadata.create_all(database.engine)
        identity = IdentityService(tmp_path, clock, cache_seconds=3.0)
        made = await database.write(identity.bootstrap)
        asked: list[str] = []
        plain = identity.lookup_key

        def counted(session: Session, key_id: str) -> object:
            asked.append(key_id)
            return plain(session, key_id)

        identity.lookup_key = counted  # type: ignore[method-assign,assignment]
        for _ in range(3):
            assert await identity.find_key(database, made.admin.access_key_id) is not None
            assert await identity.find_key(database, "AKIANOBODY") is None
        assert asked == [made.admin.access_key_id, "AKIANOBODY"]
        clock.advance(1.0)
        await identity.find_key(database, "AKIANOBODY")
        assert asked[2:] == ["AKIANOBODY"]
        await database.write(lambda session: identity.deactivate_access_key(session, made.admin.access_key_id))
        record = await identity.find_key(database, made.admin.access_key_id)
        assert record is not None and not record.active
        job = await database.write(lambda session: identity.issue_job_key(session, "a", POLICY, clock.now() + 60))
        elsewhere = IdentityService(tmp_path, clock, cache_seconds=3.0)
        assert await elsewhere.find_key(database, job.access_key_id) is not None
        await database.write(lambda session: identity.revoke_job_keys(session, "a"))
        assert await identity.find_key(database, job.access_key_id) is None
        clock.advance(3.0)
        assert await elsewhere.find_key(database, job.access_key_id) is None
    finally:
        database.close()


async def test_role_exists(tmp_path: Path, clock: ManualClock) -> None:
    database = Database(f"sqlite:///{tmp_path / 'a.sqlite3'}")
    try:
        Base.metadata.create_all(database.engine)
        identity = IdentityService(tmp_path, clock)
        made = await database.write(identity.bootstrap)
        assert await identity.role_exists(database, made.role_arn)
        later = f"arn:aws:iam::{made.account_id}:role/later"
        assert not await identity.role_exists(database, later)
        await database.write(lambda session: identity.ensure_role(session, later))
        assert await identity.role_exists(database, later)
        elsewhere = "arn:aws:iam::123456789012:role/later"
        await identity.admit_role(database, elsewhere)
        await identity.admit_role(database, elsewhere)
        assert await identity.role_exists(database, elsewhere)
        first = await database.read(lambda session: identity.get_role(session, "later"))
        assert first is not None and first.arn == later
    finally:
        database.close()
