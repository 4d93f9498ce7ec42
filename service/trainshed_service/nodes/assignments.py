"""Renders the desired state of one agent from the rows: what each of its slots is to hold, and to do with it.

Invariant: it is a function of the committed rows (and of the credentials), so every replica and every process start
renders the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from trainshed_service.jobs.spec import compression, output_base
from trainshed_service.jobs.states import AttemptState, ClusterState
from trainshed_service.providers import is_stand_in, known_type
from trainshed_service.scheduling.placement import log_stream_epoch
from trainshed_service.settings import Settings
from trainshed_service.store.prepared import Prepared
from trainshed_service.store.tables import agents, attempts, clusters, instances, jobs, nodes
from trainshed_worker.protocol import (
    Action,
    Assignment,
    ClusterHost,
    EndReason,
    MachineFacts,
    ObjectStoreAccess,
    OutputPlan,
)

PEER_GRACE_SECONDS = 5.0
"""The first process that fails ends its gang within 10 s, also where the others ignore SIGTERM."""

_HERE = (
    select(instances.c.attempt_id)
    .join(nodes, nodes.c.id == instances.c.node_id)
    .where(nodes.c.agent_id == bindparam("agent"), instances.c.cleared.is_(False))
    .distinct()
)
_LIVE = Prepared(
    select(
        attempts,
        clusters.c.epoch,
        jobs.c.name.label("job_name"),
        jobs.c.arn.label("job_arn"),
        jobs.c.request,
    )
    .join(clusters, clusters.c.id == attempts.c.cluster_id)
    .join(jobs, jobs.c.id == attempts.c.job_id)
    .where(attempts.c.id.in_(_HERE))
    .order_by(attempts.c.created_at)
)
_MEMBERS = Prepared(
    select(
        instances.c.id,
        instances.c.rank,
        instances.c.host,
        instances.c.node_id,
        instances.c.instance_type,
        instances.c.instance_group,
        instances.c.report,
        instances.c.cleared,
        nodes.c.agent_id,
        agents.c.facts,
    )
    .join(nodes, nodes.c.id == instances.c.node_id)
    .join(agents, agents.c.id == nodes.c.agent_id)
    .where(instances.c.attempt_id == bindparam("attempt"))
    .order_by(instances.c.rank)
)
_KEPT = Prepared(
    select(clusters.c.id)
    .join(nodes, nodes.c.cluster_id == clusters.c.id)
    .where(
        nodes.c.agent_id == bindparam("agent"),
        (clusters.c.state == ClusterState.HELD.value) | (clusters.c.state == ClusterState.WARM.value),
        clusters.c.warm_until.is_not(None),
    )
    .distinct()
    .order_by(clusters.c.id)
)


@dataclass(frozen=True)
class Wanted:
    """One live attempt with instances of this agent. `mine` are the ranks whose slots are not yet proven empty."""

    attempt: Any
    members: Sequence[Any]
    mine: tuple[int, ...]

    @property
    def state(self) -> AttemptState:
        return AttemptState(self.attempt.state)


def wanted_of(session: Session, agent_id: str) -> list[Wanted]:
    """All live attempts that have uncleared instances on nodes of this agent."""
    result = []
    for attempt in _LIVE.find(session, {"agent": agent_id}):
        members = _MEMBERS.find(session, {"attempt": attempt.id})
        mine = tuple(row.rank for row in members if row.agent_id == agent_id and not row.cleared)
        result.append(Wanted(attempt, members, mine))
    return result


def kept_clusters(session: Session, agent_id: str) -> list[str]:
    """Clusters with nodes of this agent that are warm pools, or will be as soon as their slots are empty."""
    return [cluster for (cluster,) in _KEPT.run(session, {"agent": agent_id})]


def _grace(outcome: dict[str, Any], settings: Settings) -> float:
    """Between SIGTERM and SIGKILL: a stop lets a script save its work; beside a failed process there is none to save,
    and one that hangs in a collective never hears of the signal."""
    failed = outcome.get("reason") == EndReason.PEER_FAILED.value
    return min(PEER_GRACE_SECONDS, settings.stop_grace_seconds) if failed else settings.stop_grace_seconds


def render(wanted: Wanted, access: ObjectStoreAccess, gang_secret: str, settings: Settings) -> list[Assignment]:
    """The assignments of this agent's instances of one attempt."""
    attempt = wanted.attempt
    request = attempt.request
    outcome = attempt.outcome or {}
    base = output_base(request)
    hosts = [
        ClusterHost(
            name=row.host,
            rank=row.rank,
            node_id=row.node_id,
            agent_id=row.agent_id,
            instance_type=row.instance_type,
            instance_group=row.instance_group,
            address=(row.report or {}).get("address"),
        )
        for row in wanted.members
    ]
    assignments = []
    for rank in wanted.mine:
        row = wanted.members[rank]
        action = _action(wanted.state, rank, outcome)
        size = _size(row.instance_type, MachineFacts.model_validate(row.facts), settings)
        assignments.append(
            Assignment(
                id=row.id,
                node_id=row.node_id,
                job_name=attempt.job_name,
                job_arn=attempt.job_arn,
                attempt_id=attempt.id,
                attempt_number=attempt.number,
                cluster_id=attempt.cluster_id,
                epoch=attempt.epoch,
                action=action,
                end_reason=EndReason(outcome["reason"]) if outcome.get("reason") else None,
                grace_seconds=_grace(outcome, settings),
                host=hosts[rank],
                hosts=hosts,
                request=request,
                object_store=access,
                start_when_ready=len({host.agent_id for host in hosts}) == 1,
                gang_secret=gang_secret,
                output=OutputPlan(
                    base_uri=base,
                    compression=compression(request),
                    parts_uri=f"{base}/.parts/{attempt.id}",
                    parts=outcome.get("parts", []) if action is Action.ASSEMBLE else [],
                ),
                log_stream_epoch=log_stream_epoch(attempt.created_at),
                deadline=attempt.deadline_at if wanted.state is AttemptState.RUNNING else None,
                **size,
            )
        )
    return assignments


def _action(state: AttemptState, rank: int, outcome: dict[str, Any]) -> Action:
    match state:
        case AttemptState.PREPARING:
            return Action.PREPARE
        case AttemptState.RUNNING:
            return Action.RUN
        case AttemptState.ENDING:
            return Action.STOP
        case AttemptState.ASSEMBLING:
            if rank == 0:
                return Action.ASSEMBLE
            return Action.STOP if outcome.get("reason") else Action.RUN
        case AttemptState.ENDED | AttemptState.CLEARED:
            return Action.CLEAR


def _size(instance_type: str, facts: MachineFacts, settings: Settings) -> dict[str, Any]:
    """What the instance has of its type: no more than the machine; devices that are absent are stood in for."""
    known = known_type(instance_type)
    vcpus = min(known.vcpus, facts.cpus) if known else facts.cpus
    memory = min(known.memory_bytes, facts.memory_bytes) if known else facts.memory_bytes
    wanted = known.accelerators if known else facts.accelerators
    stand_in = is_stand_in(instance_type, facts.accelerators)
    accelerators = min(wanted, settings.stand_in_accelerators) if stand_in else min(wanted, facts.accelerators)
    return {"vcpus": vcpus, "memory_bytes": memory, "accelerators": accelerators, "stand_in": stand_in}
