"""What the planner is told and what it answers: plain values, the whole contract between it and everything else.

Invariant: nothing here refers to a database, a clock or a process, so that recorded inputs can be run again anywhere.
All times are epoch seconds (UTC).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from trainshed_service.jobs.spec import Member, gang, max_pending_seconds, max_runtime_seconds
from trainshed_service.providers import known_type

Needs = tuple[tuple[str, int], ...]
"""How many instances of which types, in the order in which the types first occur."""

ANY_TYPE = "*"
MIN_PRIORITY, MAX_PRIORITY = -100, 100
WITHDRAWN = frozenset({"(draining)"})
"""The instance types of a node that takes no new job: one that no job can ask for."""


def offered(instance_types: Iterable[str], draining_since: float | None) -> frozenset[str]:
    """What a node is to the planner; see `NodeFree.instance_types`."""
    return frozenset(instance_types) if draining_since is None else WITHDRAWN


def needs_of(members: tuple[Member, ...]) -> Needs:
    if len(set(members)) == 1:
        return ((members[0].instance_type, len(members)),)
    return tuple(Counter(member.instance_type for member in members).items())


@dataclass(frozen=True, slots=True)
class JobQueued:
    """A job waits for instances. Its age is its id: a job that is tried again keeps its place."""

    job_id: int
    name: str
    members: tuple[Member, ...]
    avoid: frozenset[str] = frozenset()
    """Nodes that rejected or lost this job before: taken only where no others fit."""
    user_id: int | None = None
    role_arn: str = ""
    priority: int = 0
    """-100 to 100; higher comes first."""
    queued_at: float = 0.0
    max_runtime_seconds: float = 86_400.0
    expected_seconds: float | None = None
    """How long jobs like it ran before; only for projections."""
    pool_key: str | None = None
    """A warm pool with this key can run it; None: none can."""
    keep_alive: bool = False
    """Its instances are to become a warm pool."""
    give_up_at: float | None = None
    """When it fails if it still waits for capacity."""
    needs: Needs = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "needs", needs_of(self.members))

    @classmethod
    def of(
        cls,
        job_id: int,
        name: str,
        request: dict[str, Any],
        avoid: frozenset[str] = frozenset(),
        *,
        user_id: int | None = None,
        priority: int = 0,
        queued_at: float = 0.0,
        expected_seconds: float | None = None,
        pool_key: str | None = None,
    ) -> JobQueued:
        """From a validated request and what the job's row says besides."""
        members = gang(request)
        pending = max_pending_seconds(request)
        accelerated = any(
            (row := known_type(name)) is not None and row.accelerators > 0
            for name in {member.instance_type for member in members}
        )
        return cls(
            job_id,
            name,
            members,
            avoid,
            user_id=user_id,
            role_arn=str(request.get("RoleArn", "")),
            priority=priority,
            queued_at=queued_at,
            max_runtime_seconds=max_runtime_seconds(request),
            expected_seconds=expected_seconds,
            pool_key=pool_key,
            keep_alive=bool(request["ResourceConfig"].get("KeepAlivePeriodInSeconds")),
            give_up_at=queued_at + pending if pending is not None and accelerated else None,
        )


@dataclass(frozen=True, slots=True)
class JobGone:
    """The job does not wait any more (stopped, deleted)."""

    job_id: int


@dataclass(frozen=True, slots=True)
class NodeFree:
    """A node may be used. `instance_types` empty: it becomes any known type."""

    node_id: str
    instance_types: frozenset[str]


@dataclass(frozen=True, slots=True)
class NodeTaken:
    """A node is there but held. By which job or pool is said by `Running` and `PoolAvailable`."""

    node_id: str
    instance_types: frozenset[str]


@dataclass(frozen=True, slots=True)
class NodeGone:
    """A node is lost, quarantined or withdrawn."""

    node_id: str


@dataclass(frozen=True, slots=True)
class Running:
    """A job holds nodes (`node_ids[rank]` as `members[rank]`) which the planner knows as taken.

    The planner notes its own placements; this one is for restores, and tells a later, better `ends_at`.
    """

    job_id: int
    user_id: int | None
    role_arn: str
    node_ids: tuple[str, ...]
    members: tuple[Member, ...]
    started_at: float
    ends_at: float
    """By its maximum runtime."""
    expected_end: float | None = None


@dataclass(frozen=True, slots=True)
class PoolAvailable:
    """The instances of a job that ended are a warm pool now. Again with the same id: its `until` has changed."""

    cluster_id: str
    pool_key: str
    role_arn: str
    user_id: int | None
    instance_type: str
    node_ids: tuple[str, ...]
    since: float
    until: float


@dataclass(frozen=True, slots=True)
class PoolComing:
    """The instances of a job that ended are going to be this pool as soon as they are proven empty.

    A job that it matches waits for it until `by`, rather than start on other nodes.
    """

    cluster_id: str
    pool_key: str
    role_arn: str
    user_id: int | None
    instance_type: str
    node_ids: tuple[str, ...]
    by: float


@dataclass(frozen=True, slots=True)
class PoolEnded:
    """No job may take the pool any more (nor wait for one that was coming); its nodes come back one by one, each by
    `NodeFree` or `NodeGone`."""

    cluster_id: str


@dataclass(frozen=True, slots=True)
class QuotaRule:
    """At most `instances` held at once (running or warm), of `instance_type` or, with '*', of all types together."""

    subject_kind: Literal["all", "user", "role"]
    subject: str
    """A user's id in decimal, a role's ARN, '*' for all."""
    instance_type: str
    instances: int
    name: str = ""
    """What people call the subject."""


@dataclass(frozen=True, slots=True)
class Quotas:
    """All soft quotas; replaces what was said before."""

    rules: tuple[QuotaRule, ...]


@dataclass(frozen=True, slots=True)
class Usage:
    """What a user had used at `at`: instance-seconds, decayed. For restores, before any `Running`."""

    user_id: int
    instance_seconds: float
    at: float


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed, see `next_wake`."""


PlannerEvent = (
    JobQueued
    | JobGone
    | NodeFree
    | NodeTaken
    | NodeGone
    | Running
    | PoolComing
    | PoolAvailable
    | PoolEnded
    | Quotas
    | Usage
    | Tick
)


@dataclass(frozen=True, slots=True)
class Place:
    """`nodes[rank]` is the node of `algo-<rank + 1>`. `pool`: the warm pool (cluster) that these nodes are, if any."""

    job: JobQueued
    nodes: tuple[str, ...]
    pool: str | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Why the job at the head waits, to be stored. For all others the reason is computed when somebody asks."""

    job_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class Reclaim:
    """End a warm pool that nobody uses, since a job waits for its nodes."""

    cluster_id: str
    for_job_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The job waited for capacity for as long as it wanted to; it is not in the queue any more."""

    job_id: int
    name: str
    reason: str


Decision = Place | Wait | Reclaim | GiveUp
