"""Quotas as administrators set and see them.

Invariants: a rule takes effect with the commit that stores it, in every process; the planner hears of the soft ones
after it, and whatever it missed it reads when it starts. What is shown as used is counted at that moment.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import ColumnElement, delete, func, insert, select, update
from sqlalchemy.orm import Session

from trainshed_service.clock import Clock
from trainshed_service.events import record
from trainshed_service.jobs.states import ACTIVE, JobState
from trainshed_service.quotas import holdings
from trainshed_service.quotas.admission import NO_HARD_QUOTA, VERSION_KEY
from trainshed_service.quotas.rules import Rule, rules, soft_quotas
from trainshed_service.quotas.warm import WarmPool, warm_held, warm_pools
from trainshed_service.scheduling.events import Quotas
from trainshed_service.store import Database
from trainshed_service.store.models import Meta
from trainshed_service.store.tables import changed, jobs, meta, quotas
from trainshed_service.wire.errors import ApiError


@dataclass(frozen=True, slots=True)
class RuleUse:
    """A rule with what counts against it now."""

    rule: Rule
    used: int
    """Hard: instances of all jobs that have not ended. Soft: of the jobs that run, and of warm pools."""
    warm_used: int


@dataclass(frozen=True, slots=True)
class _Share:
    user_id: int | None
    role_arn: str
    instance_type: str
    instances: int
    waits: bool


class QuotaService:
    """`tell`: hears of the soft quotas whenever they change."""

    def __init__(self, database: Database, clock: Clock, tell: Callable[[Quotas], None]) -> None:
        self._database = database
        self._clock = clock
        self._tell = tell

    async def put(self, rule: Rule) -> None:
        """Set the rule of this subject and type; it replaces what there was. The subject must exist."""
        self._tell(await self._database.write(lambda session: self.store(session, rule)))

    def store(self, session: Session, rule: Rule) -> Quotas:
        """`put` in a transaction; the soft rules there are then."""
        values = {
            "instances": rule.instances,
            "warm_instances": rule.warm_instances,
            "hard": rule.hard,
            "created_at": self._clock.now(),
        }
        key = {"subject_kind": rule.subject_kind, "subject": rule.subject, "instance_type": rule.instance_type}
        had_hard = _lock(session)
        if changed(session, update(quotas).where(*_is(key)).values(**values)) == 0:
            session.execute(insert(quotas).values(**key, **values))
        return self._changed(session, had_hard, "quota.set", rule, _limits(rule))

    async def remove(self, rule: Rule) -> None:
        """NoSuchEntity where there is no rule of this subject and type."""
        key = {"subject_kind": rule.subject_kind, "subject": rule.subject, "instance_type": rule.instance_type}

        def drop(session: Session) -> Quotas:
            had_hard = _lock(session)
            if changed(session, delete(quotas).where(*_is(key))) == 0:
                raise ApiError("NoSuchEntity", f"There is no quota of {rule.words} for {rule.instance_type}.", 404)
            return self._changed(session, had_hard, "quota.removed", rule, "no limit any more")

        self._tell(await self._database.write(drop))

    def lock(self, session: Session) -> bool:
        """First in a transaction that takes rules away otherwise, with their user; what it gives is for `renew`."""
        return _lock(session)

    def renew(self, session: Session, had_hard: bool) -> Quotas:
        """Last in it; `tell` the result after the commit."""
        return self._renewed(session, had_hard)

    def tell(self, soft: Quotas) -> None:
        self._tell(soft)

    async def soft(self) -> Quotas:
        """What the planner has to keep to."""
        return await self._database.read(soft_quotas)

    async def usage(self) -> list[RuleUse]:
        """Every rule and what counts against it."""

        def read(session: Session) -> list[RuleUse]:
            found = rules(session)
            if not found:
                return []
            shares, pools = _shares(session), warm_pools(session)
            return [RuleUse(rule, _used(rule, shares, pools), warm_held(pools, rule)) for rule in found]

        return await self._database.read(read)

    def _changed(self, session: Session, had_hard: bool, kind: str, rule: Rule, words: str) -> Quotas:
        message = f"Quota of {rule.words} for {rule.instance_type}: {words}"
        record(session, self._clock.now(), kind, f"quota/{rule.subject_kind}/{rule.subject}"[:256], message)
        return self._renewed(session, had_hard)

    def _renewed(self, session: Session, had_hard: bool) -> Quotas:
        has_hard = any(rule.hard and rule.instances is not None for rule in rules(session))
        if has_hard and not had_hard:
            holdings.rebuild(session)
        elif had_hard and not has_hard:
            holdings.clear(session)
        # Never a version that was there before: one of a transaction that failed may be in somebody's memory.
        version = secrets.token_hex(8) if has_hard else NO_HARD_QUOTA
        session.execute(update(meta).where(meta.c.key == VERSION_KEY).values(value=version))
        return soft_quotas(session)


def _lock(session: Session) -> bool:
    """Wait for creates that decide by the rules as they are, keep new ones waiting; whether a rule was hard."""
    query = select(meta.c.value).where(meta.c.key == VERSION_KEY).with_for_update()
    version = session.scalar(query)
    if version is None:
        session.add(Meta(key=VERSION_KEY, value=NO_HARD_QUOTA))
        session.flush()
    return version not in (None, NO_HARD_QUOTA)


def _is(key: dict[str, str]) -> list[ColumnElement[bool]]:
    return [quotas.c[name] == value for name, value in key.items()]


def _limits(rule: Rule) -> str:
    parts = []
    if rule.instances is not None:
        parts.append(f"{rule.instances} instances ({'hard' if rule.hard else 'soft'})")
    if rule.warm_instances is not None:
        parts.append(f"{rule.warm_instances} warm instances")
    return ", ".join(parts)


def _shares(session: Session) -> list[_Share]:
    """The jobs that have not ended, summed up."""
    role = jobs.c.request["RoleArn"].as_string()
    kind = jobs.c.request["ResourceConfig"]["InstanceType"].as_string()
    waits = jobs.c.state == JobState.QUEUED.value
    live = jobs.c.state.in_([state.value for state in ACTIVE])
    grouped = (
        select(
            jobs.c.user_id,
            role.label("role"),
            kind.label("type"),
            waits.label("waits"),
            func.sum(jobs.c.instance_count),
        )
        .where(live, kind.is_not(None))
        .group_by("user_id", "role", "type", "waits")
    )
    found = [_Share(row[0], row[1], row[2], int(row[4]), bool(row[3])) for row in session.execute(grouped)]
    for row in session.execute(select(jobs.c.user_id, jobs.c.request, jobs.c.state).where(live, kind.is_(None))):
        for name, count in holdings.needs(row.request).items():
            found.append(_Share(row.user_id, row.request["RoleArn"], name, count, row.state == JobState.QUEUED))
    return found


def _used(rule: Rule, shares: list[_Share], pools: list[WarmPool]) -> int:
    used = sum(
        share.instances
        for share in shares
        if rule.covers(share.instance_type)
        and rule.concerns(share.user_id, share.role_arn)
        and (rule.hard or not share.waits)
    )
    return used if rule.hard else used + warm_held(pools, rule)
