"""Whose jobs a caller reaches, to look at and to change.

Invariants: an administrator reaches every job; a user its own, and with the setting `job_visibility` "all" everybody's
to look at; a job out of reach answers exactly as one that is not there, unless the caller may see it: then it is told
that it may not change it. What is no user reaches nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement

from trainshed_service.identity import Principal
from trainshed_service.settings import Settings
from trainshed_service.store.tables import jobs
from trainshed_service.wire.errors import ApiError, access_denied, not_found

_NOBODY = -1


@dataclass(frozen=True, slots=True)
class Reach:
    """`owner`: the id of the only user whose jobs are reached; None: of everybody."""

    owner: int | None = None
    denial: str | None = None
    """What is said of a job that may be seen but not changed; None: that it is not there."""

    def refusal(self, user_id: int | None) -> ApiError | None:
        """What a caller is told about a job of the user `user_id`; None where it reaches it."""
        if self.owner is None or self.owner == user_id:
            return None
        return not_found() if self.denial is None else access_denied(self.denial)

    def require(self, user_id: int | None) -> None:
        """`refusal`, raised."""
        refusal = self.refusal(user_id)
        if refusal is not None:
            raise refusal

    def conditions(self) -> list[ColumnElement[bool]]:
        """For a statement over `jobs` that leaves out what is not reached."""
        return [] if self.owner is None else [jobs.c.user_id == self.owner]


EVERYBODY = Reach()


def to_see(principal: Principal, settings: Settings) -> Reach:
    """Jobs whose description, lines, metrics and events the principal may read."""
    if principal.kind == "user" and settings.job_visibility == "all":
        return EVERYBODY
    return _own(principal)


def to_change(principal: Principal, settings: Settings, action: str) -> Reach:
    """Jobs that the principal may stop, update, delete and tag. `action` as IAM names it: `sagemaker:AddTags`."""
    own = _own(principal)
    if own.owner is None or settings.job_visibility != "all":
        return own
    return Reach(own.owner, f"User: {principal.arn} is not authorized to perform: {action} on a job of another user")


def owner_condition(reach: Reach) -> dict[str, Any]:
    """The parameter `owner` of a prepared statement, where it has one."""
    return {} if reach.owner is None else {"owner": reach.owner}


def _own(principal: Principal) -> Reach:
    if principal.kind == "user" and principal.is_admin:
        return EVERYBODY
    return Reach(principal.user_id if principal.kind == "user" and principal.user_id is not None else _NOBODY)
