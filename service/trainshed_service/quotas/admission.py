"""Whether a new job is let in: its role exists, and no hard quota is exceeded. Decided where the job is stored.

Invariants: the decision and the job are in one transaction, which waits for every other that would count the same (one
writer on SQLite, row locks on PostgreSQL), so jobs created at once never exceed a quota together. The rules are kept in
memory under the version that `meta` has for them, which is read in that transaction too: another process may have
changed them. The version is `NO_HARD_QUOTA` where there is none; then nothing else is looked at.
"""

from __future__ import annotations

from typing import Any, Literal

from sqlalchemy import bindparam, or_, select
from sqlalchemy.orm import Session

from trainshed_service.identity import IdentityService
from trainshed_service.quotas import holdings
from trainshed_service.quotas.rules import EVERY_TYPE, Rule, rules
from trainshed_service.store.prepared import Prepared
from trainshed_service.store.tables import meta, quotas, roles
from trainshed_service.wire.errors import ApiError

VERSION_KEY = "quota_version"
NO_HARD_QUOTA = "none"

_VERSION = Prepared(select(meta.c.value).where(meta.c.key == bindparam("wanted")).with_for_update(read=True))
# What nearly every job needs to know, in one look-up; no row: the role is not there.
_BOTH = Prepared(
    select(meta.c.value)
    .join(roles, roles.c.arn == bindparam("arn"))
    .where(meta.c.key == bindparam("wanted"))
    .with_for_update(read=True)
)


class Admission:
    """`roles`: the setting of this name."""

    def __init__(self, identity: IdentityService, roles: Literal["open", "known"]) -> None:
        self._identity = identity
        self._roles = roles
        self._hard: tuple[str, tuple[Rule, ...]] = (NO_HARD_QUOTA, ())

    def admit(self, session: Session, user_id: int | None, request: dict[str, Any]) -> bool:
        """In the transaction that stores the job, before it is stored. Whether it is to be counted (`hold`).

        ValidationException where the role is gone, ResourceLimitExceeded where a hard quota has no room.
        """
        at_hand = _BOTH.run(session, {"wanted": VERSION_KEY, "arn": request["RoleArn"]})
        if not at_hand:
            self._identity.passing.guard(session, self._roles, request["RoleArn"])
        hard = self._of_version(session, at_hand[0][0]) if at_hand else self._rules(session)
        concerned = _concerned(hard, user_id, request["RoleArn"])
        _lock(session, concerned)
        for rule in concerned:
            holdings.prune(session, rule)
            _require_room(session, rule, request)
        return bool(hard)

    def hold(self, session: Session, job_id: int, user_id: int | None, request: dict[str, Any]) -> None:
        """After it: the job counts from now on."""
        holdings.hold(session, job_id, user_id, request)

    def preview(self, session: Session, user_id: int | None, request: dict[str, Any]) -> None:
        """ResourceLimitExceeded where a job created now would be refused. Changes nothing."""
        for rule in _concerned(self._rules(session), user_id, request["RoleArn"]):
            _require_room(session, rule, request)

    def _rules(self, session: Session) -> tuple[Rule, ...]:
        row = _VERSION.run(session, {"wanted": VERSION_KEY})
        return self._of_version(session, row[0][0] if row else NO_HARD_QUOTA)

    def _of_version(self, session: Session, version: str) -> tuple[Rule, ...]:
        if version == NO_HARD_QUOTA:
            return ()
        known, hard = self._hard
        if known != version:
            hard = tuple(rule for rule in rules(session) if rule.hard and rule.instances is not None)
            self._hard = (version, hard)
        return hard


def _concerned(hard: tuple[Rule, ...], user_id: int | None, role_arn: str) -> list[Rule]:
    return [rule for rule in hard if rule.concerns(user_id, role_arn)]


def _lock(session: Session, concerned: list[Rule]) -> None:
    """On PostgreSQL: those who count the same wait for each other; always in the same order."""
    if not concerned or session.get_bind().dialect.name == "sqlite":
        return
    keys = (quotas.c.subject_kind, quotas.c.subject, quotas.c.instance_type)
    wanted = [
        (keys[0] == rule.subject_kind) & (keys[1] == rule.subject) & (keys[2] == rule.instance_type)
        for rule in concerned
    ]
    session.execute(select(*keys).where(or_(*wanted)).order_by(*keys).with_for_update()).all()


def _require_room(session: Session, rule: Rule, request: dict[str, Any]) -> None:
    asked = sum(count for name, count in holdings.needs(request).items() if rule.covers(name))
    if asked == 0 or rule.instances is None:
        return
    used = holdings.held(session, rule)
    if used + asked <= rule.instances:
        return
    what = "all instance types" if rule.instance_type == EVERY_TYPE else rule.instance_type
    raise ApiError(
        "ResourceLimitExceeded",
        f"The account-level service limit '{what} for training job usage' is {rule.instances} Instances, with current "
        f"utilization of {used} Instances and a request delta of {asked} Instances. Please contact an administrator "
        f"of this installation to request an increase for this limit. (It is the hard quota of {rule.words}; "
        "`trainshed quota list` shows all.)",
    )
