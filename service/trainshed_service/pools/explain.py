"""Every pool beside a spec: which fields match, which differ, and what would make it match. Reads only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from sqlalchemy import and_, func, select
from sqlalchemy.orm import Session

from trainshed_service.jobs.reach import Reach
from trainshed_service.jobs.states import LIVE_ATTEMPT, ClusterState
from trainshed_service.pools.match import Fields, differences, match_fields, may_keep_warm
from trainshed_service.store.tables import attempts, clusters, jobs, nodes, users

NO_POOL = (
    "Jobs on spot capacity and on heterogeneous clusters (InstanceGroups) run on instances of their own: "
    "no warm pool can match."
)


def list_pools(session: Session, reach: Reach) -> list[dict[str, Any]]:
    """Pools that are available, and clusters in use that may become one, the first to expire first.

    The name of a job that is out of reach is not told.
    """
    user = attempts.alias("user_of")
    rows = session.execute(
        select(
            clusters,
            jobs.c.name.label("job_name"),
            jobs.c.user_id.label("owner"),
            users.c.name.label("user_name"),
            jobs.c.request["ResourceConfig"]["KeepAlivePeriodInSeconds"].as_integer().label("keep_alive"),
        )
        .outerjoin(user, and_(user.c.cluster_id == clusters.c.id, user.c.state.in_([s.value for s in LIVE_ATTEMPT])))
        .outerjoin(jobs, jobs.c.id == func.coalesce(user.c.job_id, clusters.c.last_job_id))
        .outerjoin(users, users.c.id == jobs.c.user_id)
        .where(
            clusters.c.state.in_((ClusterState.HELD.value, ClusterState.WARM.value)),
            clusters.c.match_key.is_not(None),
        )
        .order_by(clusters.c.warm_until.is_(None), clusters.c.warm_until, clusters.c.created_at)
    ).all()
    members: dict[str, list[str]] = defaultdict(list)
    held = select(nodes.c.id, nodes.c.cluster_id).where(nodes.c.cluster_id.is_not(None)).order_by(nodes.c.id)
    for node_id, cluster_id in session.execute(held).tuples():
        members[str(cluster_id)].append(node_id)
    return [_pool(row, members[row.id], reach) for row in rows]


def explain(session: Session, request: Mapping[str, Any], reach: Reach) -> dict[str, Any]:
    """`pools`: each with `matches`, `differences` (field, wanted, has) and `advice`, the nearest first.

    `canMatch` False: such a job never takes a pool, and `reason` says why.
    """
    if not may_keep_warm(request):
        return {"canMatch": False, "reason": NO_POOL, "fields": None, "pools": []}
    wanted = match_fields(request)
    pools = [_compared(pool, wanted) for pool in list_pools(session, reach)]
    pools.sort(key=lambda pool: (len(pool["differences"]), pool["status"] != "Available"))
    return {"canMatch": True, "reason": None, "fields": wanted, "pools": pools}


def _pool(row: Any, node_ids: list[str], reach: Reach) -> dict[str, Any]:
    warm = row.state == ClusterState.WARM
    seen = row.job_name is not None and reach.refusal(row.owner) is None
    return {
        "clusterId": row.id,
        "status": "Available" if warm else "InUse",
        "job": row.job_name if seen else None,
        "since": row.warm_since if warm else row.created_at,
        "until": row.warm_until if warm else None,
        "fields": row.match_fields,
        "user": row.user_name if seen else None,
        "keepAliveSeconds": int(row.keep_alive or 0),
        "nodes": node_ids,
    }


def _compared(pool: dict[str, Any], wanted: Fields) -> dict[str, Any]:
    found = differences(wanted, pool["fields"])
    if found:
        advice = "To match, " + " and ".join(
            f"set {name} to {_shown(has)} (wanted: {_shown(want)})" for name, want, has in found
        )
    elif pool["status"] == "Available":
        advice = "The next job with these fields starts on it."
    else:
        holder = f"job {pool['job']}" if pool["job"] else "a job of another user"
        advice = f"It is in use by {holder}: a further job takes another pool, free instances, or waits."
    return {
        **pool,
        "matches": not found,
        "differences": [{"field": name, "wanted": want, "has": has} for name, want, has in found],
        "advice": advice,
    }


def _shown(value: Any) -> str:
    if value is None or value == []:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
