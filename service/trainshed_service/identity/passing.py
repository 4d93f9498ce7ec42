"""Which roles a user may run jobs in.

Invariants: an administrator may use every role that exists; a user with a list (`restricted`) the roles on it and no
other; a user without one every role where the setting `roles` is "open", else none but those on its list. With "open" a
role comes to be by being named, but never by somebody who may not use it. A job is stored only while its role exists
(`guard`, in the same transaction).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from trainshed_service.identity.principal import Principal
from trainshed_service.store import Database
from trainshed_service.store.prepared import Prepared
from trainshed_service.store.tables import role_passes, roles, users
from trainshed_service.wire.errors import ApiError, access_denied, validation_error

if TYPE_CHECKING:
    from trainshed_service.identity.service import IdentityService

Mode = Literal["open", "known"]

_LIST = Prepared(select(role_passes.c.role_arn).where(role_passes.c.user_id == bindparam("user_id")))
_RESTRICTED = Prepared(select(users.c.restricted).where(users.c.id == bindparam("user_id")))
# Locked where the database locks rows, so that the role is not deleted before the job that names it is stored.
_ROLE = Prepared(select(roles.c.arn).where(roles.c.arn == bindparam("arn")).with_for_update(read=True))


class RolePassing:
    def __init__(self, identity: IdentityService) -> None:
        self._identity = identity

    async def listed(self, database: Database, mode: Mode, principal: Principal) -> frozenset[str] | None:
        """ARNs of all roles that the principal may use; None: every one."""
        if principal.is_admin:
            return None
        whose = {"user_id": principal.user_id}
        restricted = await database.look(_RESTRICTED, whose)
        if mode == "open" and restricted and not restricted[0][0]:
            return None
        return frozenset(arn for (arn,) in await database.look(_LIST, whose))

    async def may(self, database: Database, mode: Mode, principal: Principal, arn: str) -> bool:
        """Whether the principal may use the role, which need not exist."""
        allowed = await self.listed(database, mode, principal)
        return allowed is None or arn in allowed

    def may_in(self, session: Session, mode: Mode, principal: Principal, arn: str) -> bool:
        """`may` inside a transaction."""
        if principal.is_admin:
            return True
        whose = {"user_id": principal.user_id}
        restricted = _RESTRICTED.run(session, whose)
        if mode == "open" and restricted and not restricted[0][0]:
            return True
        return any(listed == arn for (listed,) in _LIST.run(session, whose))

    async def require(self, database: Database, mode: Mode, principal: Principal, arn: str) -> None:
        """AccessDeniedException or ValidationException in AWS's words. With "open" the role exists afterwards."""
        identity = self._identity
        if mode == "known" and not await identity.role_exists(database, arn):
            raise unknown_role(arn)
        if not await self.may(database, mode, principal, arn):
            raise not_passable(principal, arn)
        if mode == "open":
            await identity.admit_role(database, arn)

    def guard(self, session: Session, mode: Mode, arn: str) -> None:
        """In the transaction that stores a job: its role is there, and stays until the end of the transaction."""
        if _ROLE.run(session, {"arn": arn}):
            return
        if mode == "known":
            raise unknown_role(arn)
        self._identity.ensure_role(session, arn)


def unknown_role(arn: str) -> ApiError:
    return validation_error(
        f"Could not assume role {arn}. Please ensure that the role exists and allows principal"
        " 'sagemaker.amazonaws.com' to assume the role. (`trainshed env` names a role that this installation has.)"
    )


def not_passable(principal: Principal, arn: str) -> ApiError:
    return access_denied(
        f"User: {principal.arn} is not authorized to perform: iam:PassRole on resource: {arn} because no "
        "identity-based policy allows the iam:PassRole action"
    )
