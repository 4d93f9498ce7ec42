"""Pools that are about to be: their job has ended, and their slots are being emptied.

Whoever sends the next job as soon as the last one has ended expects its instances, and they are available in a moment:
a matching job waits for them rather than start afresh elsewhere, which takes longer. Not for ever: emptying may hang.

Invariant: a pool is coming from the transaction in which its job ended until it is available or ended, and counts as
such for the setting `pool_coming_seconds` at most, also over a restart.
"""

from __future__ import annotations

from collections import defaultdict

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainshed_service.jobs.states import ClusterState, NodeState
from trainshed_service.pools.life import available, kept_of
from trainshed_service.scheduling.events import PoolComing
from trainshed_service.store.tables import clusters, jobs, nodes


def coming_pools(session: Session, longest: float, cluster_id: str | None = None) -> list[PoolComing]:
    """All of them, or the one that this cluster is going to be. `longest`: seconds that they count as such."""
    query = (
        select(clusters, jobs.c.user_id)
        .join(jobs, jobs.c.id == clusters.c.last_job_id)
        .where(clusters.c.state == ClusterState.HELD.value, clusters.c.warm_until.is_not(None))
        .order_by(clusters.c.id)
    )
    if cluster_id is not None:
        query = query.where(clusters.c.id == cluster_id)
    rows = session.execute(query).all()
    members: dict[str, list[str]] = defaultdict(list)
    for node in session.execute(
        select(nodes.c.id, nodes.c.cluster_id)
        .where(
            nodes.c.cluster_id.in_([row.id for row in rows]),
            nodes.c.state.in_((NodeState.LEASED.value, NodeState.WARM.value)),
        )
        .order_by(nodes.c.id)
    ):
        members[node.cluster_id].append(node.id)
    found = []
    for row in rows:
        pool = available(kept_of(row), row.user_id, members[row.id])
        found.append(
            PoolComing(
                pool.cluster_id,
                pool.pool_key,
                pool.role_arn,
                pool.user_id,
                pool.instance_type,
                pool.node_ids,
                min(pool.since + longest, pool.until),
            )
        )
    return found
