"""Who is told of an event, and how much.

Rules: a target of everybody is an administrator's and is told all. A target of a user is told of the user's own jobs
and pools, and of the pools of others whose role the user may pass, since its next job can start on them. Of a job that
the user may not see, name and reason are not told; commands only where the user may carry them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from trainshed_service.identity import Principal, RolePassing
from trainshed_service.jobs.reach import to_change, to_see
from trainshed_service.notifications.kinds import DROPPED, POOL_KINDS
from trainshed_service.settings import Settings


@dataclass(frozen=True, slots=True)
class Sight:
    """`named`: the job may be named. `may_change`: its pool may be extended and ended."""

    named: bool
    may_change: bool


FULL = Sight(named=True, may_change=True)


@dataclass(frozen=True, slots=True)
class Receiver:
    """A target and its user; `principal` None: everybody's."""

    target_id: str
    principal: Principal | None


def sight_of(
    session: Session,
    receiver: Receiver,
    kind: str,
    data: Mapping[str, Any],
    passing: RolePassing,
    settings: Settings,
) -> Sight | None:
    """What the receiver is told of an event with this `data`; None: nothing."""
    if kind == DROPPED:
        return FULL if data.get("targetId") == receiver.target_id else None
    principal = receiver.principal
    if principal is None:
        return FULL
    owner = data.get("userId")
    if owner is not None and owner == principal.user_id:
        return FULL
    role = data.get("roleArn")
    if kind not in POOL_KINDS or role is None or not passing.may_in(session, settings.roles, principal, role):
        return None
    named = to_see(principal, settings).refusal(owner) is None
    change = to_change(principal, settings, "sagemaker:UpdateTrainingJob").refusal(owner) is None
    return Sight(named=named, may_change=named and change)
