"""Users, keys, roles and tokens. Every function that takes a session runs inside `Database.write` or `.read`.

Invariants: a secret is stored only sealed, a token only hashed; a job's key always has a policy, a session token and an
end; names that this installation gives out (ARNs) always carry its own account id.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from trainshed_service.clock import Clock
from trainshed_service.identity.cache import KeyCache
from trainshed_service.identity.passing import RolePassing
from trainshed_service.identity.policy import check_policy
from trainshed_service.identity.principal import Credentials, KeyRecord, Principal
from trainshed_service.identity.role_use import need_unused
from trainshed_service.identity.sealing import SecretBox, load_or_create_key
from trainshed_service.identity.sessions import Sessions, key_origin, origin_of_hash, token_origin
from trainshed_service.identity.users import ADMIN, Users
from trainshed_service.store import Database
from trainshed_service.store.models import AccessKey, BearerToken, Meta, Role, User
from trainshed_service.wire.errors import ApiError
from trainshed_service.wire.pagination import PageTokens

DEFAULT_ROLE = "TrainshedExecutionRole"
KEY_FILE = "secret.key"

_ROLE_ARN = re.compile(r"arn:aws[a-z\-]*:iam::(?P<account>\d{12}):role/?(?P<path>[a-zA-Z_0-9+=,.@\-_/]+)")
_ROLE_NAME = re.compile(r"[a-zA-Z_0-9+=,.@\-]{1,64}")
_MAX_ARN = 256
_BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """What a fresh or an existing installation consists of. The same at each call."""

    account_id: str
    admin: Credentials
    role_arn: str
    enrollment_token: str = field(repr=False)


class IdentityService:
    """One per process. `home` holds the key file, which is made at first use."""

    def __init__(self, home: Path, clock: Clock, *, cache_seconds: float = 1.0) -> None:
        self._clock = clock
        self._box = SecretBox(load_or_create_key(home / KEY_FILE))
        self._cache = KeyCache(clock, ttl=cache_seconds)
        self._account_id: str | None = None
        self._known_roles: set[str] = set()
        self.page_tokens = PageTokens(self._box.derive("page-tokens"))
        self.sessions = Sessions(clock, self._principal_of)
        self.users = Users(clock)
        self.passing = RolePassing(self)

    def derive_key(self, purpose: str) -> bytes:
        """32 bytes for another purpose, stable over restarts."""
        return self._box.derive(purpose)

    # -- the installation --------------------------------------------------------------------------------------

    def bootstrap(
        self, session: Session, account_id: str | None = None, enrollment_token: str | None = None
    ) -> Bootstrap:
        """Make account, admin user and key, default role and enrollment token, as far as they are not there yet.

        An enrollment token that is given takes the place of the one that was there.
        """
        account = self._meta(session, "account_id") or account_id or _random_account_id()
        self._set_meta(session, "account_id", account)
        user = session.scalar(select(User).where(User.name == ADMIN))
        if user is None:
            user = self.create_user(session, ADMIN, is_admin=True)
        key_id = self._meta(session, "admin_key_id")
        key = session.get(AccessKey, key_id) if key_id else None
        if key is None or not key.active:
            admin = self.create_access_key(session, user.id)
            self._set_meta(session, "admin_key_id", admin.access_key_id)
        else:
            admin = Credentials(key.id, self._box.open(key.id, key.secret_sealed))
        role = self.ensure_role(session, f"arn:aws:iam::{account}:role/service-role/{DEFAULT_ROLE}")
        return Bootstrap(account, admin, role.arn, self._enrollment_token(session, enrollment_token))

    def account_id(self, session: Session) -> str:
        """The account of this installation: 12 digits."""
        if self._account_id is None:
            found = self._meta(session, "account_id")
            if found is None:
                raise RuntimeError("this home has no account yet; run `trainshed up` (or `trainshed server`) once")
            self._account_id = found
        return self._account_id

    def check_enrollment_token(self, session: Session, token: str) -> bool:
        """Whether an agent that shows this token may join."""
        return secrets.compare_digest(self._enrollment_token(session).encode(), token.encode())

    # -- users and keys ----------------------------------------------------------------------------------------

    def create_user(self, session: Session, name: str, *, is_admin: bool = False) -> User:
        """EntityAlreadyExists where the name is taken."""
        return self.users.create(session, name, is_admin=is_admin)

    def delete_user(self, session: Session, name: str) -> None:
        """The user, its keys, tokens and sessions work no more (`Users.leave`)."""
        for key_id in self.users.leave(session, name):
            self._cache.forget(key_id)

    def create_access_key(self, session: Session, user_id: int) -> Credentials:
        made = Credentials("AKIA" + _random_base32(16), secrets.token_urlsafe(30))
        self._store_key(session, made, user_id=user_id)
        return made

    def deactivate_access_key(self, session: Session, access_key_id: str) -> None:
        session.execute(update(AccessKey).where(AccessKey.id == access_key_id).values(active=False))
        self.sessions.end_of_origin(session, key_origin(access_key_id))
        self._cache.forget(access_key_id)

    def forget_keys(self) -> None:
        """Keys or users were changed: what this process knows of them is looked up again."""
        self._cache.forget()

    def activate_access_key(self, session: Session, access_key_id: str) -> None:
        session.execute(update(AccessKey).where(AccessKey.id == access_key_id).values(active=True))
        self._cache.forget(access_key_id)

    def delete_access_key(self, session: Session, access_key_id: str) -> None:
        self.deactivate_access_key(session, access_key_id)
        session.execute(delete(AccessKey).where(AccessKey.id == access_key_id))

    def home_key_id(self, session: Session) -> str | None:
        """The key with which the commands of this installation's home sign; a start makes a new one where it is off."""
        return self._meta(session, "admin_key_id")

    def issue_job_key(
        self, session: Session, attempt_id: str, policy: Mapping[str, Any], expires_at: float
    ) -> Credentials:
        """A key of one attempt that may do what `policy` says until `expires_at` (epoch seconds)."""
        check_policy(policy)
        token = "TSK" + secrets.token_urlsafe(48)
        made = Credentials("ASIA" + _random_base32(16), secrets.token_urlsafe(30), token, expires_at)
        self._store_key(session, made, attempt_id=attempt_id, policy=dict(policy))
        return made

    def revoke_job_keys(self, session: Session, attempt_id: str) -> None:
        """No key of this attempt works any more, once the caches' second is over (`KeyCache`)."""
        revoked = session.scalars(select(AccessKey.id).where(AccessKey.attempt_id == attempt_id)).all()
        session.execute(delete(AccessKey).where(AccessKey.attempt_id == attempt_id))
        for key_id in revoked:
            self._cache.forget(key_id)

    def lookup_key(self, session: Session, access_key_id: str) -> KeyRecord | None:
        """What SigV4 needs to know of a key; None where there is none."""
        key = session.get(AccessKey, access_key_id)
        if key is None:
            return None
        account = self.account_id(session)
        if key.attempt_id is not None:
            name = key.attempt_id
            principal = Principal(
                kind="job",
                name=name,
                account_id=account,
                arn=f"arn:aws:sts::{account}:assumed-role/trainshed-job/{name}",
                attempt_id=name,
                policy=key.policy or {},
            )
        else:
            user = session.get(User, key.user_id)
            if user is None or user.deleted_at is not None:
                return None
            principal = self._user_principal(account, user)
        return KeyRecord(
            access_key_id=key.id,
            secret=self._box.open(key.id, key.secret_sealed),
            principal=principal,
            session_token_hash=key.session_token_hash,
            policy=key.policy,
            expires_at=key.expires_at,
            active=key.active,
        )

    def user_principal(self, session: Session, name: str) -> Principal | None:
        """The user of this name as a caller; None where there is none."""
        user = session.scalar(select(User).where(User.name == name, User.deleted_at.is_(None)))
        return None if user is None else self._user_principal(self.account_id(session), user)

    async def find_key(self, database: Database, access_key_id: str) -> KeyRecord | None:
        """`lookup_key` with a short-lived cache before it, for use once per request."""
        known, record = self._cache.get(access_key_id)
        if not known:
            asked_at = self._clock.now()
            record = await database.read(lambda session: self.lookup_key(session, access_key_id))
            self._cache.put(access_key_id, record, asked_at=asked_at)
        return record

    # -- roles -------------------------------------------------------------------------------------------------

    def ensure_role(self, session: Session, arn: str) -> Role:
        """The role with this ARN, made where it is not there. Its account has one of its name.

        Roles of other accounts are known too: specs written for SageMaker name the account that they came from.
        """
        match = _ROLE_ARN.fullmatch(arn)
        if match is None:
            raise ApiError("ValidationException", f"'{arn}' is not the ARN of a role.")
        name = match["path"].rsplit("/", 1)[-1]
        for role in session.scalars(select(Role).where(Role.name == name)):
            if role.arn == arn:
                return role
            if role.arn.split(":")[4] == match["account"]:
                raise ApiError("EntityAlreadyExists", f"Role with name {name} already exists as {role.arn}.", 409)
        role = Role(name=name, arn=arn, created_at=self._clock.now())
        session.add(role)
        session.flush()
        return role

    def get_role(self, session: Session, name: str) -> Role | None:
        """The role of this name; the first made where accounts share one."""
        return session.scalar(select(Role).where(Role.name == name).order_by(Role.created_at).limit(1))

    def find_role(self, session: Session, arn: str) -> Role | None:
        """The role with exactly this ARN."""
        return session.scalar(select(Role).where(Role.arn == arn))

    async def role_exists(self, database: Database, arn: str) -> bool:
        """Whether a role with exactly this ARN is known. A yes is remembered in this process; for one that is deleted
        meanwhile by another, `RolePassing.guard` has the last word."""
        if arn not in self._known_roles:
            if await database.read(lambda session: self.find_role(session, arn)) is None:
                return False
            self._known_roles.add(arn)
        return True

    async def admit_role(self, database: Database, arn: str) -> None:
        """Make the role known where it is not. For installations whose `roles` setting is "open"."""
        if not await self.role_exists(database, arn):
            await database.write(lambda session: self.ensure_role(session, arn).arn)

    def resolve_role(self, session: Session, named: str) -> Role:
        """The role with this ARN or name. NoSuchEntity; ValidationException where several accounts share the name."""
        if named.startswith("arn:"):
            role = self.find_role(session, named)
        else:
            found = session.scalars(select(Role).where(Role.name == named).order_by(Role.arn)).all()
            if len(found) > 1:
                arns = ", ".join(role.arn for role in found)
                raise ApiError("ValidationException", f"Several roles are called {named}; name one by its ARN: {arns}")
            role = found[0] if found else None
        if role is None:
            raise ApiError("NoSuchEntity", f"The role with name {named[:300]} cannot be found.", 404)
        return role

    def create_role(self, session: Session, named: str) -> Role:
        """A role of this account by its name, or of any account by its ARN. EntityAlreadyExists."""
        if not named.startswith("arn:"):
            if not _ROLE_NAME.fullmatch(named):
                raise ApiError(
                    "ValidationException",
                    f"'{named[:100]}' is no name of a role: 1 to 64 of the characters A-Z a-z 0-9 _ + = , . @ -",
                )
            named = f"arn:aws:iam::{self.account_id(session)}:role/{named}"
        if len(named) > _MAX_ARN:
            raise ApiError("ValidationException", f"The ARN of a role has at most {_MAX_ARN} characters.")
        if self.find_role(session, named) is not None:
            raise ApiError("EntityAlreadyExists", f"The role {named} already exists.", 409)
        return self.ensure_role(session, named)

    def delete_role(self, session: Session, arn: str) -> None:
        """Forget the role. DeleteConflict while a job that has not ended or a warm pool is of it."""
        locked = session.scalar(select(Role.arn).where(Role.arn == arn).with_for_update())
        if locked is None:
            raise ApiError("NoSuchEntity", f"The role {arn[:300]} cannot be found.", 404)
        if arn.endswith(f":role/service-role/{DEFAULT_ROLE}") and f"::{self.account_id(session)}:" in arn:
            raise ApiError(
                "DeleteConflict", f"{DEFAULT_ROLE} is the installation's own role; it cannot be deleted.", 409
            )
        need_unused(session, arn)
        session.execute(delete(Role).where(Role.arn == arn))
        self._known_roles.discard(arn)

    def list_roles(self, session: Session) -> list[Role]:
        return list(session.scalars(select(Role).order_by(Role.name)))

    # -- bearer tokens -----------------------------------------------------------------------------------------

    def create_bearer_token(self, session: Session, user_id: int, name: str, expires_at: float | None = None) -> str:
        """A token for REST clients. It is shown once; only its hash is stored."""
        token = "ts_" + secrets.token_urlsafe(32)
        session.add(
            BearerToken(
                token_hash=_hash(token),
                user_id=user_id,
                name=name,
                created_at=self._clock.now(),
                expires_at=expires_at,
            )
        )
        session.flush()
        return token

    def authenticate_bearer(self, session: Session, token: str) -> Principal | None:
        """The user whose token this is; None where it is unknown or has run out."""
        row = session.get(BearerToken, _hash(token))
        if row is None or (row.expires_at is not None and row.expires_at <= self._clock.now()):
            return None
        return self._principal_of(session, row.user_id)

    def revoke_token(self, session: Session, token_id: str) -> None:
        """`Users.revoke_token`, with the sessions that the token opened."""
        self.sessions.end_of_origin(session, origin_of_hash(self.users.revoke_token(session, token_id)))

    def revoke_bearer_token(self, session: Session, token: str) -> None:
        session.execute(delete(BearerToken).where(BearerToken.token_hash == _hash(token)))
        self.sessions.end_of_origin(session, token_origin(token))

    # -- inner -------------------------------------------------------------------------------------------------

    def _principal_of(self, session: Session, user_id: int) -> Principal | None:
        user = session.get(User, user_id)
        if user is None or user.deleted_at is not None:
            return None
        return self._user_principal(self.account_id(session), user)

    def _user_principal(self, account: str, user: User) -> Principal:
        if user.is_admin:
            # An assumed-role ARN: the SageMaker SDK refuses to derive a role from the ARN of a plain user.
            arn = f"arn:aws:sts::{account}:assumed-role/{DEFAULT_ROLE}/{user.name}"
        else:
            arn = f"arn:aws:iam::{account}:user/{user.name}"
        return Principal("user", user.name, account, arn, is_admin=user.is_admin, user_id=user.id)

    def _store_key(
        self,
        session: Session,
        made: Credentials,
        *,
        user_id: int | None = None,
        attempt_id: str | None = None,
        policy: dict[str, Any] | None = None,
    ) -> None:
        session.add(
            AccessKey(
                id=made.access_key_id,
                user_id=user_id,
                attempt_id=attempt_id,
                secret_sealed=self._box.seal(made.access_key_id, made.secret_access_key),
                session_token_hash=_hash(made.session_token) if made.session_token else None,
                policy=policy,
                active=True,
                created_at=self._clock.now(),
                expires_at=made.expires_at,
            )
        )
        session.flush()

    def _enrollment_token(self, session: Session, given: str | None = None) -> str:
        sealed = self._meta(session, "enrollment_token_sealed")
        present = None if sealed is None else self._box.open("enrollment-token", base64.b64decode(sealed))
        token = given or present or "tse_" + secrets.token_urlsafe(32)
        if token == present:
            return token
        value = base64.b64encode(self._box.seal("enrollment-token", token)).decode()
        self._set_meta(session, "enrollment_token_sealed", value)
        return token

    @staticmethod
    def _meta(session: Session, key: str) -> str | None:
        row = session.get(Meta, key)
        return None if row is None else row.value

    @staticmethod
    def _set_meta(session: Session, key: str, value: str) -> None:
        session.merge(Meta(key=key, value=value))
        session.flush()


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def _random_base32(length: int) -> str:
    return "".join(secrets.choice(_BASE32) for _ in range(length))


def _random_account_id() -> str:
    """12 digits, the first not 0: some clients read the id as a number."""
    return str(secrets.randbelow(9 * 10**11) + 10**11)
