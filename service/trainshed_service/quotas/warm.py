"""How many instances may still be kept warm.

A pool counts against the quotas of its last job's user and role from the moment at which that job ended with a
keep-alive until another job takes the pool or it ends. While a job uses it, it counts as that job's instances.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainshed_service.jobs.states import ClusterState
from trainshed_service.quotas.rules import Rule, rules
from trainshed_service.store.tables import clusters, jobs


@dataclass(frozen=True, slots=True)
class WarmPool:
    user_id: int | None
    role_arn: str
    instance_type: str
    instances: int


def warm_room(session: Session, user_id: int | None, role_arn: str, instance_type: str, held: int = 0) -> int | None:
    """How many instances a pool of this user, role and type may have; None: as many as it likes.

    `held`: instances of that very pool which are counted already (0 where its job has just ended). Never below 0.
    """
    concerned = [
        rule
        for rule in rules(session)
        if rule.warm_instances is not None and rule.covers(instance_type) and rule.concerns(user_id, role_arn)
    ]
    if not concerned:
        return None
    pools = warm_pools(session)
    return max(0, min((rule.warm_instances or 0) - warm_held(pools, rule) for rule in concerned) + held)


def warm_held(pools: list[WarmPool], rule: Rule) -> int:
    """Warm instances that count against the rule."""
    return sum(
        pool.instances
        for pool in pools
        if rule.covers(pool.instance_type) and rule.concerns(pool.user_id, pool.role_arn)
    )


def warm_pools(session: Session) -> list[WarmPool]:
    """The pools that there are: available, or being emptied to become so."""
    rows = session.execute(
        select(clusters.c.match_fields, jobs.c.user_id)
        .join(jobs, jobs.c.id == clusters.c.last_job_id)
        .where(
            clusters.c.state.in_((ClusterState.HELD.value, ClusterState.WARM.value)),
            clusters.c.warm_until.is_not(None),
        )
    )
    return [
        WarmPool(
            row.user_id,
            row.match_fields["RoleArn"],
            row.match_fields["ResourceConfig.InstanceType"],
            row.match_fields["ResourceConfig.InstanceCount"],
        )
        for row in rows
    ]
