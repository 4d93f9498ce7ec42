"""The rules as values, and which of them concern whom.

A rule limits a subject: one user, one role, or all together (kind `all`: the sum over everybody, not a default for
each). Of several rules that concern a job every one holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from sqlalchemy import and_, select
from sqlalchemy.orm import Session

from trainshed_service.scheduling.events import QuotaRule, Quotas
from trainshed_service.store.tables import quotas, users

Kind = Literal["all", "user", "role"]
EVERY_TYPE = "*"
EVERYBODY = "*"


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of `quotas`. None: no limit. `user_id` is set for the kind `user` alone."""

    subject_kind: Kind
    subject: str
    """A user's name, a role's ARN, '*' for all."""
    instance_type: str
    """'*': of all types together."""
    instances: int | None
    warm_instances: int | None
    hard: bool
    user_id: int | None = None

    def concerns(self, user_id: int | None, role_arn: str) -> bool:
        """Whether a job of this user in this role counts."""
        if self.subject_kind == "user":
            return user_id is not None and self.user_id == user_id
        return self.subject_kind == "all" or self.subject == role_arn

    def covers(self, instance_type: str) -> bool:
        return self.instance_type in (EVERY_TYPE, instance_type)

    @property
    def words(self) -> str:
        """Like `user anna`."""
        return "everybody together" if self.subject_kind == "all" else f"{self.subject_kind} {self.subject}"


def rules(session: Session) -> list[Rule]:
    """All of them, ordered by subject and type. Rules of users that left are gone with them."""
    rows = session.execute(
        select(quotas, users.c.id.label("user_id"))
        .outerjoin(users, and_(quotas.c.subject_kind == "user", users.c.name == quotas.c.subject))
        .order_by(quotas.c.subject_kind, quotas.c.subject, quotas.c.instance_type)
    )
    return [
        Rule(
            cast(Kind, row.subject_kind),
            row.subject,
            row.instance_type,
            row.instances,
            row.warm_instances,
            bool(row.hard),
            row.user_id,
        )
        for row in rows
    ]


def soft_quotas(session: Session) -> Quotas:
    """What the planner is told: it replaces what it was told before."""
    return Quotas(
        tuple(
            QuotaRule(
                subject_kind=rule.subject_kind,
                subject=str(rule.user_id) if rule.subject_kind == "user" else rule.subject,
                instance_type=rule.instance_type,
                instances=rule.instances,
                name=rule.subject,
            )
            for rule in rules(session)
            if not rule.hard and rule.instances is not None
        )
    )
